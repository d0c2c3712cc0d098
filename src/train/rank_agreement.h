// What all ranks of a run must agree on, checked by hashes.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/named_tensor.h"
#include "data/sequence_source.h"
#include "device/device.h"
#include "train/run_config.h"

namespace mpt {

// Throws Error on every rank, naming what differs and where, unless config, program and data are the same:
// the latter by their number of tokens and sequences here and there.
void check_same_start(Communicator& ranks, const RunConfig& config, const SequenceSource& training_data);

// Throws Error on every rank, naming the first tensor that differs and the ranks, unless all hold the same
// bytes.
void check_same_tensors(Communicator& ranks, const std::vector<NamedTensor>& tensors, Device& device);

}  // namespace mpt
