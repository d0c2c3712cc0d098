// Validation loss of a checkpoint, on its run's data or on other shards.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/io/file_system.h"
#include "evaluation/evaluate.h"

namespace mpt {

struct EvaluateCheckpointOptions {
  std::string checkpoint;         // a checkpoint, or a run's directory
  std::vector<std::string> data;  // shards: files or globs; empty: the run's validation data
  std::optional<int64_t> tokens;  // token budget; none: the run's
  int64_t micro_batch_rows = 0;   // 0: the run's
  int64_t galore_batch_rows = 0;  // 0: the run's
  DeviceConfig device{};
};

struct CheckpointEvaluation {
  std::string checkpoint;
  int64_t step = 0;
  ValidationResult result;
};

CheckpointEvaluation evaluate_checkpoint(FileSystem& fs, const EvaluateCheckpointOptions& options);

}  // namespace mpt
