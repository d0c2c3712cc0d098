// How fast the device multiplies matrices, and where the time of a training step goes.
#pragma once

#include <cstdint>
#include <string>

#include "device/device.h"
#include "device/profiling.h"
#include "model/llama_config.h"

namespace mpt {

// How fast the device is at GEMMs, and how many of them a token takes.

// FLOP/s of large GEMMs on random data, the best of a few after a first one: FP32 of 1024^3 on a
// CPU, BF16 of 8192^3 on a GPU.
double measured_gemm_rate(Device& device);

// FLOPs that a token of training takes: 6 for each weight of a GEMM, and 6 L C T for causal attention, in
// forward and backward. Recomputation and elementwise work do not count.
double flops_per_token(const LlamaConfig& config, int64_t seq_len);

// What `mpretrain --profile` prints: where the time of a training step goes, operation by operation.

struct ProfiledSteps {
  int64_t steps;     // that were profiled
  double gemm_rate;  // FLOP/s measured on the device
};

// A row for each operation, within what it is part of. Of its time a row's `self` lies in none of the rows
// below it: these percentages add up to 100. GFLOP/s where the GEMMs of an operation are counted,
// also as a percentage of the GEMM rate.
std::string profile_table(const Profile& profile, const ProfiledSteps& of);

}  // namespace mpt
