// The verb `checkpoint average`: the mean of the weights of several checkpoints of one model, or
// the EMA stored by a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/io/file_system.h"
#include "core/io/output_directory.h"
#include "precision/encoded_tensor.h"
#include "precision/weight_formats.h"
#include "weights/weight_source.h"
#include "weights/weights_checkpoint.h"

namespace mpt {

struct AverageOptions {
  std::vector<std::string>
      checkpoints;                // checkpoints, or a run's directory for its newest good one
  std::optional<int64_t> last{};  // instead: this many of the newest checkpoints of one run
  double decay = 1;               // in (0, 1]: each weight is this times the next one's
  bool ema = false;               // instead: the EMA stored in one checkpoint (train.ema_decay)
  WeightsConfig wanted{.output = {}, .weights = WeightFormat::kF32};
  Overwrite overwrite = Overwrite::kNo;
};

struct AveragedCheckpoints {
  std::vector<std::string> checkpoints;  // the checkpoints read
  RunConfig config;                      // of the new checkpoint
  WeightChanges changes;                 // from storing the mean
};

// Averages the checkpoints, given in order with the newest last. Means are computed in FP64,
// rounded once to FP32 and once more to the stored format. Data, tokenizer and seed are those of
// the last checkpoint. Throws Error unless there are at least two, of the same model, or one with
// an EMA.
AveragedCheckpoints average_checkpoints(FileSystem& fs, const AverageOptions& options);

}  // namespace mpt
