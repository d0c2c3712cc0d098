// metrics.jsonl: one JSON object a line, appended as a run goes, readable after any crash.
//
// * A line reaches the system before append() returns, whole or not at all: one that could not be completed
//   (a kill within the write, a full disk) is cut off again, at once or when the file is next opened.
// * Every line is valid JSON: a NaN or infinite number becomes null beside a key that tells which it was,
//     {"loss": null, "loss_nonfinite": "nan"}      {"x": [1, null], "x_nonfinite": [null, "-inf"]}
//   and bytes that are not UTF-8 become U+FFFD. Finite numbers read back as the same double.
// * A resumed run appends {"event": "resume", "step": k}: what comes after replaces the records of
//   steps above k. So does one that goes back by itself, and adds a "reason".
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
  // Creates the file or continues it.
  MetricsLog(FileSystem& fs, std::string path);

  // `record` is an object; its keys are written in their order.
  void append(const nlohmann::ordered_json& record);
  void mark_resume(int64_t step, const std::string& reason = "");
  // Returns when the lines are on the storage device: to be called before a checkpoint is committed.
  void sync();

 private:
  void cut_torn();

  FileSystem& fs_;
  std::string path_;
  std::unique_ptr<WritableFile> file_;
  int64_t size_ = 0;   // of the complete lines
  bool torn_ = false;  // part of a line follows them
};

// The last record of every step that counts: those replaced after a resume are left out, and so are events
// and a torn last line. A line that is damaged or has no step is an Error with its number.
std::map<int64_t, nlohmann::json> read_metrics(FileSystem& fs, const std::string& path);

}  // namespace mpt
