// train.init_from: the checkpoint whose weights a new run starts from.
#pragma once

#include <optional>
#include <string>

#include "comm/communicator.h"
#include "config/run_config.h"
#include "core/io/file_system.h"
#include "inference/loaded_model.h"

namespace mpt {

// The checkpoint that train.init_from names, verified; nullopt if the config names none. Throws
// Error unless it has the model of the config in all that the model's function and shapes depend
// on, naming what differs with both values, and the tokenizer of its data, where both are known.
// With train.init_from_other_rope, rotary frequencies may differ, and the log tells both values.
// Rank 0 verifies it. Collective.
std::optional<SavedWeights> initial_weights(FileSystem& fs, const RunConfig& config,
                                            Communicator& ranks = Communicator::single());

// Whether the checkpoint is not there any more: its own run, which goes on, may have removed it
// (checkpoint.keep_last). initial_weights() finds the newer one. Collective.
bool initial_weights_are_gone(FileSystem& fs, const SavedWeights& initial, const RunConfig& config,
                              Communicator& ranks);

}  // namespace mpt
