// Saved weights whose files are open: from then on, the run of their checkpoint may remove it.
#pragma once

#include <memory>
#include <string>

#include "core/io/output_directory.h"
#include "weights/loaded_model.h"
#include "weights/weight_source.h"
#include "weights/weights_checkpoint.h"

namespace mpt {

template <class Source>
struct OpenedWeights {
  SavedWeights saved;
  std::unique_ptr<Source> source;
};
OpenedWeights<CheckpointWeights> opened_at(FileSystem& fs, const std::string& checkpoint,
                                           Device& device);

// A new checkpoint with the model, data and tokenizer of a saved one.
WeightsCheckpoint checkpoint_like(FileSystem& fs, const SavedWeights& saved,
                                  const WeightsConfig& wanted, Overwrite overwrite);

}  // namespace mpt
