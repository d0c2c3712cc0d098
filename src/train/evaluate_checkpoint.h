// Validation loss of a checkpoint, on its run's data or on other shards.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/file_system.h"
#include "train/evaluate.h"
#include "train/run_config.h"

namespace mpt {

struct EvaluateCheckpointOptions {
  std::string checkpoint;         // or a run's directory
  std::vector<std::string> data;  // shards: files and globs; empty: those of the run's validation
  std::optional<int64_t> tokens;  // budget; none: the run's
  int64_t micro_batch_rows = 0;   // 0: the run's
  int64_t family_batch_rows = 0;  // 0: the run's
  DeviceConfig device{};
};

struct CheckpointEvaluation {
  std::string checkpoint;
  int64_t step = 0;
  Evaluation evaluation;
};

CheckpointEvaluation evaluate_checkpoint(FileSystem& fs, const EvaluateCheckpointOptions& options);

}  // namespace mpt
