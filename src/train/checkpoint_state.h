// state.json of a checkpoint: text to structure and back, sealed by a hash of its own content.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/file_system.h"
#include "train/checkpoint_files.h"

namespace mpt {

inline constexpr const char* kStateName = "state.json";

struct CheckpointRecord {
  TrainState state;
  std::vector<CheckpointFile> files;
  int64_t version = 0;   // of the format, as read
  std::string saved_at;  // "2026-05-31T23:59:59Z"; empty where it is not known
};

// In the newest version of the format; `version` of the record is not looked at.
std::string checkpoint_record_text(const CheckpointRecord& record);
// `path` is named in errors.
CheckpointRecord parse_checkpoint_record(const std::string& path, std::string_view text);

// The state.json of that directory.
CheckpointRecord read_checkpoint_record(FileSystem& fs, const std::string& directory);

// One of the files alone, for other ranks.
std::string checkpoint_file_text(const CheckpointFile& file);
CheckpointFile parse_checkpoint_file(const std::string& path, std::string_view text);

}  // namespace mpt
