// The verb `convert`: the weights of a checkpoint in a different stored format.
#pragma once

#include <cstdint>
#include <string>

#include "config/run_config.h"
#include "core/io/file_system.h"
#include "core/io/output_directory.h"
#include "weights/weight_source.h"
#include "weights/weights_checkpoint.h"

namespace mpt {

struct ConvertOptions {
  std::string checkpoint;  // a checkpoint, or a run's directory
  WeightsConfig wanted;
  Overwrite overwrite = Overwrite::kNo;
};

struct ConvertedCheckpoint {
  std::string checkpoint;  // the checkpoint read
  int64_t step = 0;        // its step
  RunConfig config;        // of the new checkpoint
  WeightChanges changes;
};

// Widening is exact, narrowing rounds to nearest; weights already in the format are copied.
ConvertedCheckpoint convert_checkpoint(FileSystem& fs, const ConvertOptions& options);

}  // namespace mpt
