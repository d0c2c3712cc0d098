// Cosines and sines of the rotary embedding, computed once on the host in FP64.
#pragma once

#include "device/device.h"
#include "model/llama_config.h"

namespace mpt {

struct RopeTable {
  Tensor cosine, sine;  // [positions, D/2] fp32

  RopeTable() = default;
  // Only plans when the allocator plans (the tensors' data is null then).
  RopeTable(const LlamaConfig& config, int64_t positions, Device& device, Allocator& allocator);
};

}  // namespace mpt
