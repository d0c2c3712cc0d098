// Activations that forward keeps for backward, planned up front.
//
// Legend: N = B T tokens of a micro-batch, C hidden, F stored MLP width, H query heads, K key/value
// heads, D head dimension.
#pragma once

#include <optional>
#include <vector>

#include "core/tensor.h"
#include "device/device.h"
#include "model/llama_config.h"
#include "model/quantized_matrix.h"
#include "precision/precision_config.h"

namespace mpt {

inline constexpr MemoryPurpose kActivationMemory{"activations"}, kLogitMemory{"logits"};
inline constexpr MemoryPurpose kDataMemory{"data"};  // tokens and targets

// Whether a block's activations are kept, or recomputed from its input in backward.
enum class Recompute : uint8_t { kNone, kBlock };

struct BatchShape {
  int64_t rows;     // B
  int64_t seq_len;  // T
  [[nodiscard]] int64_t tokens() const { return rows * seq_len; }
};

// Quantized matrices are read only by GEMMs of linear layers, and hold FP8 codes if those compute
// in FP8. With Fp8Layout::kRowsOfK each layer keeps only the transposed codes, for backward; all
// layers share the row-major codes.
struct LayerActivations {
  Tensor residual;                    // [N, C] the block's input
  QuantizedMatrix attn_norm;          // [N, C]
  Tensor attn_inv_rms;                // [1, N] fp32
  Tensor qkv;                         // [N, (H + 2 K) D] after RoPE
  Tensor qk_before_norm;              // [N, (H + K) D] with qk_norm: the GEMM's Q and K
  Tensor qk_inv_rms;                  // [N, H + K] fp32 with qk_norm
  Tensor log_sum_exp;                 // [B H, T] fp32
  Tensor attention;                   // [N, H D]
  QuantizedMatrix attention_operand;  // [N, H D] in FP8 a cast of it, else the same tensor
  Tensor middle;                      // [N, C] after the attention's residual addition
  QuantizedMatrix mlp_norm;           // [N, C]
  Tensor mlp_inv_rms;                 // [1, N] fp32
  Tensor gate_up;                     // [N, 2F]; backward may leave its gradient here
  QuantizedMatrix mlp;                // [N, F] SwiGLU output
};

struct Activations {
  std::vector<LayerActivations> layers;
  Tensor final_residual;       // [N, C]
  QuantizedMatrix final_norm;  // [N, C] FP8 codes with fp8_lm_head
  Tensor final_inv_rms;        // [1, N] fp32
  Tensor branch;  // [N, C] output of the block half just computed, not yet added to the residual
                  // stream
};

enum class Keep : uint8_t { kForBackward, kNothing };

// The config that supplies the fp8_* keys of an FP8 model; nullopt outside FP8.
inline std::optional<PrecisionConfig> fp8_of(const PrecisionConfig& precision) {
  if (precision.compute != ComputeFormat::kFp8) return std::nullopt;
  return precision;
}

// Precision of the GEMMs that are not in FP8.
inline Multiply multiply_of(const PrecisionConfig& precision) {
  return precision.compute == ComputeFormat::kTf32 ? Multiply::kTf32 : Multiply::kFull;
}

struct ActivationOptions {
  BatchShape shape;
  DType storage;
  Recompute recompute = Recompute::kNone;
  Keep keep = Keep::kForBackward;
  std::optional<PrecisionConfig> fp8{};  // its fp8_* keys, if linear layers compute in FP8
  Fp8Layout fp8_layout = Fp8Layout::kAny;
};

// With Keep::kNothing (evaluation) or with recomputation, all layers share one set of tensors.
Activations plan_activations(const LlamaConfig& config, const ActivationOptions& options,
                             Allocator& allocator);

}  // namespace mpt
