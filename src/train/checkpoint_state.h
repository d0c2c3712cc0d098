// state.json of a checkpoint: text to structure and back, sealed by a hash of its own content.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "train/checkpoint_files.h"

namespace mpt {

struct CheckpointFile {
  std::string name;  // within the checkpoint's directory
  int64_t bytes = 0;
  std::string hash;
};

struct CheckpointRecord {
  TrainState state;
  std::vector<CheckpointFile> files;
};

std::string checkpoint_record_text(const CheckpointRecord& record);
// `path` is named in errors.
CheckpointRecord parse_checkpoint_record(const std::string& path, std::string_view text);

}  // namespace mpt
