// Device operations of a LLaMA other than GEMMs and attention. Written once over Exec
// (llama_ops_on.h) and instantiated per backend; a backend may override individual operations with
// tuned kernels.
//
// Legend: B sequences, T tokens, N = B T, C hidden, H query heads, K key/value heads, D head
// dimension, F stored MLP width, V vocabulary. "Storage" tensors are either all fp32 or all bf16;
// gradients of parameters may be either.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <variant>

#include "core/tensor.h"
#include "device/device.h"
#include "device/gemm.h"
#include "device/ops_registry.h"
#include "precision/fp8_ops.h"

namespace mpt {

// RMSNorm of x = residual + branch (branch.data null: x = residual, sum unused). `out` may be empty
// (no rows) if a cast computes it from x and inv_rms; see NormInput.
struct NormForwardCall {
  Tensor residual, branch, sum;  // [N, C] storage
  Tensor out;                    // [N, C] storage, or fp32 (unrounded)
  Tensor inv_rms;                // [1, N] fp32
  Tensor gain;                   // [1, C] storage
  float eps;
};

struct NormBackwardCall {
  Tensor d_out, x;        // [N, C] storage
  Tensor inv_rms;         // [1, N] fp32
  Tensor gain;            // [1, C] storage
  Tensor d_x;             // [N, C] storage, added to
  Tensor d_gain_partial;  // [norm_chunks(N), C] fp32 scratch
  Tensor d_gain;          // [1, C] gradient
  Accumulate accumulate;
};

// RMSNorm of every head of Q and K, in place (formulas/head_norm.h).
struct HeadNormForwardCall {
  Tensor qkv;                   // [N, (H + 2 K) D] storage
  Tensor before;                // [N, (H + K) D] storage: Q and K before normalization, written
  Tensor inv_rms;               // [N, H + K] fp32, written
  Tensor query_gain, key_gain;  // [1, D] storage
  int64_t query_heads;          // H
  float eps;
};

// Replaces the gradient of the normalized heads by that of the heads before normalization, in
// place.
struct HeadNormBackwardCall {
  Tensor d_qkv;                           // [N, (H + 2 K) D] storage
  Tensor before;                          // [N, (H + K) D] storage
  Tensor inv_rms;                         // [N, H + K] fp32
  Tensor query_gain, key_gain;            // [1, D] storage
  Tensor d_query_partial, d_key_partial;  // [norm_chunks(N), D] fp32 scratch
  Tensor d_query_gain, d_key_gain;        // [1, D] gradient
  int64_t query_heads;                    // H
  Accumulate accumulate;
};

struct RopeCall {
  Tensor qkv;             // [N, (H + 2 K) D] storage, Q and K rotated in place
  Tensor cosine, sine;    // [positions, D/2] fp32
  int64_t rotated_heads;  // H + K
  int64_t head_dim, seq_len;
  int64_t first_position = 0;
  float direction = 1.0f;   // -1: backward
  Tensor document_begin{};  // [1, N] int32 if positions restart with each document, else empty
};

struct CrossEntropyCall {
  Tensor logits;   // [rows, V] storage; overwritten by its gradient if gradient_scale is set
  Tensor targets;  // [1, rows] int32
  Tensor losses;   // [1, rows] fp32
  const float* gradient_scale = nullptr;  // in device memory; null: losses only
  float z_loss = 0;                       // factor on lse^2, in the gradient only
};

struct EmbeddingBackwardCall {
  Tensor d_out;    // [N, C] storage
  Tensor first;    // [1, V + 1] int32: uses of row v begin at first[v]
  Tensor uses;     // [1, N] int32: token positions, by vocabulary row, ascending
  Tensor d_table;  // [V, C] gradient
  Accumulate accumulate;
};

// One new token per call, which attends to itself and to the `past` tokens before it in the cache.
struct CachedAttentionCall {
  Tensor qkv;           // [1, (H + 2 K) D] storage, RoPE applied; K and V go to the caches
  Tensor keys, values;  // [positions, K D] storage
  Tensor scores;        // [H, positions] fp32 scratch
  Tensor out;           // [1, H D] storage
  int64_t heads, key_value_heads, head_dim, past;
};

// Inputs of linear layers that are computed inside their FP8 cast and never stored in a wider type.
struct SwigluInput {
  Tensor gate_up;  // [N, 2F] bf16
};
struct NormInput {
  Tensor x;        // [N, C] bf16
  Tensor inv_rms;  // [1, N] fp32, from norm_forward
  Tensor gain;     // [1, C] bf16
};
using ComputedInput = std::variant<SwigluInput, NormInput>;

// Generic kernels are the reference for tuned ones, and handle the shapes that those do not
// support.
enum class LlamaKernels : uint8_t { kTuned, kGeneric };

class LlamaOps {
 public:
  static constexpr std::string_view kFamily = "LLaMA operations";
  struct Options {
    LlamaKernels kernels = LlamaKernels::kTuned;  // if the backend has both
  };

  virtual ~LlamaOps() = default;
  virtual void zero(const Tensor& tensor) = 0;
  virtual void embedding_forward(const Tensor& table, const Tensor& tokens, const Tensor& out) = 0;
  virtual void embedding_backward(const EmbeddingBackwardCall& call) = 0;
  // Computes EmbeddingBackwardCall::first from its `uses` and the tokens [1, N] int32.
  virtual void find_first_uses(const Tensor& tokens, const Tensor& uses, const Tensor& first) = 0;
  virtual void norm_forward(const NormForwardCall& call) = 0;
  virtual void norm_backward(const NormBackwardCall& call) = 0;
  // Rows of partial sums that norm_backward needs for up to n tokens.
  [[nodiscard]] virtual int64_t norm_chunks(int64_t n) const = 0;
  virtual void head_norm_forward(const HeadNormForwardCall& call) = 0;
  virtual void head_norm_backward(const HeadNormBackwardCall& call) = 0;
  virtual void rope(const RopeCall& call) = 0;
  // `out` has the type of `gate_up`, or fp32 (unrounded).
  virtual void swiglu_forward(const Tensor& gate_up, const Tensor& out) = 0;
  // The gradients overwrite gate_up.
  virtual void swiglu_backward(const Tensor& gate_up, const Tensor& d_out) = 0;
  // norm_forward() without `out`, and an FP8 cast of that output; in one pass where the backend
  // supports it. Equivalent to norm_forward() followed by cast(NormInput).
  virtual void norm_forward_and_cast(const NormForwardCall& call, const Fp8CastCall& cast) = 0;
  // Each operation and an FP8 cast of its output, qkv or gate_up; in one pass where the backend
  // supports it. Codes and amax equal those of a separate cast afterwards. qkv or gate_up may be
  // left unchanged or overwritten.
  virtual void rope_and_cast(const RopeCall& call, const Fp8CastCall& cast) = 0;
  virtual void swiglu_backward_and_cast(const Tensor& gate_up, const Tensor& d_out,
                                        const Fp8CastCall& cast) = 0;
  // Likewise for d_x, which is written as well.
  virtual void norm_backward_and_cast(const NormBackwardCall& call, const Fp8CastCall& cast) = 0;
  // Like Fp8Casts, for a computed input with the shape of the call's source. Codes and amaxes equal
  // those of the same input stored in fp32, or in bf16 if the cast rounds to bf16 first.
  virtual void cast(const ComputedInput& input, const Fp8CastCall& call) = 0;
  virtual void gather_amax(const ComputedInput& input, const Fp8CastCall& call) = 0;
  virtual void cross_entropy(const CrossEntropyCall& call) = 0;
  // Writes the sum of losses [1, n] fp32 to sum [1, 1] fp64.
  virtual void sum_losses(const Tensor& losses, const Tensor& sum) = 0;
  virtual void cached_attention(const CachedAttentionCall& call) = 0;
  // Rounds every element of an fp32 tensor to the nearest bf16 value, in place.
  virtual void round_to_bf16(const Tensor& tensor) = 0;
};

// Casts of one computed input; both must outlive it.
class ComputedCasts final : public Fp8Casts {
 public:
  ComputedCasts(LlamaOps& ops, const ComputedInput& input) : ops_(ops), input_(input) {}
  void cast(const Fp8CastCall& call) override { ops_.cast(input_, call); }
  void gather_amax(const Fp8CastCall& call) override { ops_.gather_amax(input_, call); }

 private:
  LlamaOps& ops_;
  const ComputedInput& input_;
};

template <>
std::unique_ptr<LlamaOps> make_cpu_ops(const LlamaOps::Options&);

}  // namespace mpt
