// Cosines and sines of the rotary embedding, computed once on the host in FP64.
#pragma once

#include "device/device.h"
#include "model/llama_config.h"

namespace mpt {

struct RopeTable {
  Tensor cosine, sine;  // [positions, D/2] fp32

  RopeTable() = default;
  // With a planning allocator it only plans, and the tensors' data is null.
  RopeTable(const LlamaConfig& config, int64_t positions, Device& device, Allocator& allocator);
};

}  // namespace mpt
