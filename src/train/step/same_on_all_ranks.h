// Checks by hashes that all ranks of a run agree.
#pragma once

#include <vector>

#include "config/run_config.h"
#include "core/named_tensor.h"
#include "data/mixture.h"
#include "device/device.h"
#include "optim/gradient_norm.h"
#include "optim/update_statistics.h"
#include "ranks/communicator.h"

namespace mpt {

// Throws Error on every rank, naming the difference and its rank, unless config, program and
// training data are the same. For each corpus, compares the counts of tokens and sequences and a
// sample of sequences.
void check_same_start(Communicator& ranks, const RunConfig& config, const Mixture& training_data);

// Makes all ranks compute GEMMs in the same way. Call after they were reserved and those of a
// checkpoint restored. On a CPU, if device.bf16_dot leaves the choice of sums to each rank: by
// fma if processors differ, which it logs. On a GPU: by the algorithms of rank 0, which a
// checkpoint holds, since each rank timed its own.
void agree_on_gemms(Communicator& ranks, Device& device);

// Throws Error on every rank, naming the ranks and the first tensor that differs, unless all hold
// the same bytes.
void check_same_tensors(Communicator& ranks, const std::vector<NamedTensor>& tensors,
                        Device& device);

}  // namespace mpt
