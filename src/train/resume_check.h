// Whether a checkpoint may be continued with the config at hand.
#pragma once

#include <string>

#include "data/sequence_source.h"
#include "train/checkpoint_files.h"
#include "train/run_config.h"

namespace mpt {

// Throws Error naming the first key that must not change between a checkpoint and its continuation (shape,
// formats, data order, seed, rule) or a change of the training data; logs a warning for every other key that
// differs.
void check_resumable(const TrainState& saved, const std::string& checkpoint, const RunConfig& config,
                     const SequenceSource& training_data);

// A count among what a trainer saved besides the config. Throws Error if it is not there.
int64_t saved_count(const TrainState& saved, const std::string& checkpoint, const std::string& key);

}  // namespace mpt
