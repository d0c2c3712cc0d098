// How fast the device is, and how fast a run could be: the limit that step lines compare with.
#pragma once

#include "device/device.h"
#include "model/llama_config.h"

namespace mpt {

// FP32 products per second of the device on random data, in FLOP/s: the best of a few products of 1024^3,
// after a first one.
double measured_product_rate(Device& device);

// FLOPs that a token of training takes: 6 for each weight of a product, and 6 L C T for causal attention, in
// forward and backward. Recomputation and elementwise work do not count.
double flops_per_token(const LlamaConfig& config, int64_t seq_len);
inline constexpr const char* kFlopsFormula = "(6 N_products + 6 L C T) tokens/s / measured FP32 product rate";

}  // namespace mpt
