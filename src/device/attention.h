// Causal multi-head attention. No [T,T] matrix outlives a call.
//
//   O = softmax(Q K^T / sqrt(D), causal) V      per sequence and head.
// Legend: B sequences, T tokens, H heads, D head dimension, C = H D.
#pragma once

#include <cstdint>
#include <string>

#include "core/tensor.h"
#include "device/memory.h"

namespace mpt {

struct AttentionShape {
  int64_t batch;     // B
  int64_t seq_len;   // T
  int64_t heads;     // H
  int64_t head_dim;  // D
};

struct AttentionForward {
  AttentionShape shape;
  Tensor qkv;  // [B T, 3C]: Q, K and V side by side, RoPE already applied
  Tensor out;  // [B T, C]
  // [at least B H, T] fp32: natural logarithm of the sum of exponentials of the scaled scores,
  // which the backward pass needs.
  Tensor log_sum_exp;
};

struct AttentionBackward {
  AttentionShape shape;
  Tensor qkv;          // [B T, 3C]
  Tensor out;          // [B T, C]
  Tensor log_sum_exp;  // [B H, T] fp32
  Tensor d_out;        // [B T, C]
  Tensor d_qkv;        // [B T, 3C], written
};

class Attention {
 public:
  virtual ~Attention() = default;
  // Takes from `allocator` the scratch needed by calls up to this shape on tensors of `storage`
  // (fp32 or bf16).
  virtual void reserve(Allocator& allocator, const AttentionShape& shape, DType storage) = 0;
  virtual void forward(const AttentionForward& call) = 0;
  virtual void backward(const AttentionBackward& call) = 0;
  // Which implementation computes calls of this shape, readable, and why not a faster one; empty
  // where the backend has only one. Asks a library at most once.
  virtual std::string in_use(const AttentionShape& /*shape*/, DType /*storage*/) { return {}; }
};

// FLOPs of the GEMMs over all causal (query, key) pairs: S and O in forward; S again, dV, dP, dQ
// and dK in backward.
double flops_of(const AttentionForward& call);
double flops_of(const AttentionBackward& call);

// Throw LogicError unless the tensors have the shapes and types above.
void check_shapes(const AttentionForward& call);
void check_shapes(const AttentionBackward& call);

}  // namespace mpt
