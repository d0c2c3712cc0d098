// How fast the device is, and how fast a run could be: the limit that step lines compare with.
#pragma once

#include <string_view>

#include "device/device.h"
#include "model/llama_config.h"

namespace mpt {

// What the percentage of the step lines is of.
struct ProductRate {
  double flops_per_second;
  std::string_view formula;  // of the percentage
};

// The device's rate of large matrix products on random data, the best of a few after a first one: FP32 of
// 1024^3 on a CPU, BF16 of 8192^3 on a GPU.
ProductRate measured_product_rate(Device& device);

// FLOPs that a token of training takes: 6 for each weight of a product, and 6 L C T for causal attention, in
// forward and backward. Recomputation and elementwise work do not count.
double flops_per_token(const LlamaConfig& config, int64_t seq_len);

}  // namespace mpt
