// TensorBoard event files: the numbers of metrics.jsonl by tag and step.
//
// Layout, little-endian (TensorFlow's record_writer.h, event.proto, summary.proto): for each record
// its length u64, the length's checksum u32, the bytes of an Event, their checksum u32. A checksum
// is a CRC-32C, rotated right by 15 bits, plus 0xa282ead8.
//
// * A record is handed to the system before scalars() returns. A kill can tear only the last record
//   of a file, which readers skip; a resumed run starts another file and never changes an earlier
//   one.
// * A resumed run and a rollback write a restart mark at the next step: on reading it, TensorBoard
//   drops that step and later ones.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/io/file_system.h"

namespace mpt {

// CRC-32C (Castagnoli), as in iSCSI.
uint32_t crc32c(std::string_view bytes);

using Scalars = std::vector<std::pair<std::string, double>>;  // by tag

// Returns the numbers of a step's record of metrics.jsonl under TensorBoard's tags: train/loss,
// validation/loss, validation/<set>/loss, updates_moved/<tensor>, ...
Scalars scalars_of(const nlohmann::ordered_json& record);
Scalars scalars_of(const nlohmann::json& record);

class EventFile {
 public:
  // Creates a file in `directory` whose name sorts after all event files there. `fs` must outlive
  // this object.
  EventFile(FileSystem& fs, const std::string& directory);

  // `wall_time`: seconds since 1970.
  void scalars(int64_t step, double wall_time, const Scalars& values);
  // Invalidates records of `step` and later ones.
  void restart(int64_t step, double wall_time);
  // Returns once all records are on the storage device.
  void sync() { file_->sync(); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::unique_ptr<WritableFile> file_;
};

// The records of a file, for callers that write one themselves.
std::string version_event(double wall_time);
std::string restart_event(int64_t step, double wall_time);
std::string scalars_event(int64_t step, double wall_time, const Scalars& values);

}  // namespace mpt
