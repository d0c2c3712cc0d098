// state.json of a checkpoint: parsing and writing. It is sealed by a hash of its own content.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/io/file_system.h"

namespace mpt {

// State of a run other than tensors. NaN and infinite values are preserved.
struct TrainState {
  int64_t step = 0;
  int64_t cursor = 0;  // global sequences consumed
  uint64_t seed = 0;
  nlohmann::json config;  // resolved
  nlohmann::json extra;   // provided by the caller, such as counters
  int64_t tokens = 0;     // trained on so far
};

// A range of consecutive elements of a tensor, stored in one file.
struct StoredSpan {
  std::string tensor;
  std::vector<int64_t> shape;  // of the whole tensor
  int64_t first = 0, count = 0;
  bool operator==(const StoredSpan&) const = default;
};

// A complete and synced file of a checkpoint.
struct CheckpointFile {
  std::string name;  // within the checkpoint's directory
  int64_t bytes = 0;
  std::string hash;
  std::vector<StoredSpan> spans{};  // for tensors that the file holds in part
  bool operator==(const CheckpointFile&) const = default;
};

inline constexpr const char* kStateName = "state.json";

struct CheckpointRecord {
  TrainState state;
  std::vector<CheckpointFile> files;
  int64_t version = 0;   // of the format it was read from
  std::string saved_at;  // "2026-05-31T23:59:59Z"; empty if unknown
};

// Writes the newest version of the format; the record's `version` is ignored.
std::string checkpoint_record_text(const CheckpointRecord& record);
// `path` is used in error messages.
CheckpointRecord parse_checkpoint_record(const std::string& path, std::string_view text);

// Reads state.json of `directory`.
CheckpointRecord read_checkpoint_record(FileSystem& fs, const std::string& directory);

// One CheckpointFile as text, to send to other ranks.
std::string checkpoint_file_text(const CheckpointFile& file);
CheckpointFile parse_checkpoint_file(const std::string& path, std::string_view text);

}  // namespace mpt
