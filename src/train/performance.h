// GEMM rate of the device, FLOPs per token, and the profile table of a training step.
#pragma once

#include <cstdint>
#include <string>

#include "device/device.h"
#include "device/profiling.h"
#include "model/llama_config.h"

namespace mpt {

// GEMM rate, and FLOPs per token.

// FLOP/s of large GEMMs on random data, the best of a few after a warm-up: FP32 1024^3 on a CPU,
// BF16 8192^3 on a GPU.
double measured_gemm_rate(Device& device);

// FLOPs of training per token, forward and backward: 6 per weight of a GEMM, plus 6 L H D T for
// causal attention. Excludes recomputation and elementwise work.
double flops_per_token(const LlamaConfig& config, int64_t seq_len);

// What `mpretrain --profile` prints: the time of a training step by operation.

struct ProfiledSteps {
  int64_t steps;     // steps profiled
  double gemm_rate;  // FLOP/s measured on the device
};

// One row per operation, nested under its parent. `self` is the time not covered by child rows, so
// its percentages add up to 100. Operations whose GEMMs are counted show GFLOP/s, also as a
// percentage of the GEMM rate.
std::string profile_table(const Profile& profile, const ProfiledSteps& of);

}  // namespace mpt
