// metrics.jsonl: one JSON object per line, appended as a run proceeds, readable after any crash.
//
// * append() hands a whole line to the system before it returns. A torn line (a kill within the
//   write, a full disk) is truncated, at once or when the file is next opened.
// * Every line is valid JSON: a NaN or infinite number becomes null, and an extra key names it,
//     {"loss": null, "loss_nonfinite": "nan"}      {"x": [1, null], "x_nonfinite": [null, "-inf"]}
//   and bytes that are not UTF-8 become U+FFFD. Finite numbers read back as the same double.
// * A resumed run appends {"event": "resume", "step": k}: later records replace those of steps
//   above k. A rollback, and the start of a phase, append the same with a "reason".
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "core/io/file_system.h"

namespace mpt {

class MetricsLog {
 public:
  // Creates the file, or appends to an existing one.
  MetricsLog(FileSystem& fs, std::string path);

  // `record` must be an object; the order of its keys is kept.
  void append(const nlohmann::ordered_json& record);
  void mark_resume(int64_t step, const std::string& reason = "");
  // Returns once all lines are on the storage device. Call before committing a checkpoint.
  void sync();

 private:
  void cut_torn();

  FileSystem& fs_;
  std::string path_;
  std::unique_ptr<WritableFile> file_;
  int64_t size_ = 0;   // bytes of complete lines
  bool torn_ = false;  // a partial line follows them
};

// Returns the last record of every step. Omits records replaced after a resume, events and a torn
// last line. Throws Error with the line number if a line is damaged or has no step.
std::map<int64_t, nlohmann::json> read_metrics(FileSystem& fs, const std::string& path);

}  // namespace mpt
