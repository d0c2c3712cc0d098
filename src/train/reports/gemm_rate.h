// GEMM rate of the device, and FLOPs per token.
#pragma once

#include <cstdint>
#include <string>

#include "device/device.h"
#include "device/profiling.h"
#include "model/llama_config.h"

namespace mpt {

// Returns the FLOP/s of large GEMMs on random data, the best of a few after a warm-up: FP32 1024^3
// on a CPU, BF16 8192^3 on a GPU.
double measured_gemm_rate(Device& device);

// Returns the training FLOPs per token, forward and backward: 6 per weight of a GEMM, plus 6 L H D
// T for causal attention. Excludes recomputation and elementwise work.
double flops_per_token(const LlamaConfig& config, int64_t seq_len);

}  // namespace mpt
