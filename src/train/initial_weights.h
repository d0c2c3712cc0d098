// train.init_from: the checkpoint whose weights a new run starts from.
#pragma once

#include <optional>
#include <string>

#include "config/run_config.h"
#include "core/io/file_system.h"
#include "ranks/communicator.h"
#include "weights/loaded_model.h"

namespace mpt {

// Returns the verified checkpoint that train.init_from names; nullopt if the config names none.
// Throws Error unless everything that the model's function and shapes depend on equals the config,
// naming the difference with both values, and unless the tokenizer is that of the run's data, if
// both are known. With train.init_from_other_rope, rotary frequencies may differ, and both values
// are logged. Rank 0 verifies the checkpoint. Collective.
std::optional<SavedWeights> initial_weights(FileSystem& fs, const RunConfig& config,
                                            Communicator& ranks = Communicator::single());

// Returns whether the checkpoint has been removed since: its own run, still training, may have done
// so (checkpoint.keep_last). initial_weights() finds the newer one. Collective.
bool initial_weights_are_gone(FileSystem& fs, const SavedWeights& initial, const RunConfig& config,
                              Communicator& ranks);

}  // namespace mpt
