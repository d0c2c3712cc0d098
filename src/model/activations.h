// What the forward pass keeps for the backward pass, planned up front.
//
// Legend: N = B T tokens of a micro-batch, C hidden, F stored MLP width, H heads.
#pragma once

#include <vector>

#include "device/device.h"
#include "model/llama_config.h"

namespace mpt {

// Whether a block's activations are kept, or computed again from its input when backward reaches it.
enum class Recompute : uint8_t { kNone, kBlock };

struct BatchShape {
  int64_t rows;     // B
  int64_t seq_len;  // T
  [[nodiscard]] int64_t tokens() const { return rows * seq_len; }
};

struct LayerActivations {
  Tensor residual;      // [N, C] the block's input
  Tensor attn_norm;     // [N, C]
  Tensor attn_inv_rms;  // [1, N] fp32
  Tensor qkv;           // [N, 3C] after RoPE
  Tensor log_sum_exp;   // [B H, T] fp32
  Tensor attention;     // [N, C]
  Tensor middle;        // [N, C] after the attention's residual addition
  Tensor mlp_norm;      // [N, C]
  Tensor mlp_inv_rms;   // [1, N] fp32
  Tensor gate_up;       // [N, 2F]; backward leaves its gradient here
  Tensor mlp;           // [N, F] SwiGLU output
};

struct Activations {
  std::vector<LayerActivations> layers;
  Tensor final_residual;  // [N, C]
  Tensor final_norm;      // [N, C]
  Tensor final_inv_rms;   // [1, N] fp32
  Tensor branch;  // [N, C] output of the block half just computed, not yet added to the residual stream
};

enum class Keep : uint8_t { kForBackward, kNothing };

// With Keep::kNothing (evaluation), and for blocks that are recomputed, all layers share one set of tensors.
Activations plan_activations(const LlamaConfig& config, const BatchShape& shape, DType dtype,
                             Recompute recompute, Keep keep, Allocator& allocator);

}  // namespace mpt
