// Causal multi-head attention. No [T,T] matrix outlives a call.
//
//   O = softmax(Q K^T / sqrt(D), causal) V      per sequence and query head,
// with keys only from the query's document if the scope is kDocument (core/attention_scope.h). Each
// group of H / K adjacent query heads shares one key/value head (grouped queries); the gradient of
// that head is the sum over its readers.
// Legend: B sequences, T tokens, H query heads, K key/value heads, D head dimension.
#pragma once

#include <cstdint>
#include <string>

#include "core/attention_scope.h"
#include "core/tensor.h"
#include "device/memory.h"

namespace mpt {

struct AttentionShape {
  int64_t batch;            // B
  int64_t seq_len;          // T
  int64_t heads;            // H
  int64_t key_value_heads;  // K, a divisor of H
  int64_t head_dim;         // D
  AttentionScope scope = AttentionScope::kRow;

  [[nodiscard]] constexpr bool empty() const { return batch == 0 || heads == 0 || seq_len == 0; }
  // Query heads per key/value head.
  [[nodiscard]] constexpr int64_t readers() const {
    return heads == key_value_heads ? 1 : heads / key_value_heads;
  }
  // Columns of all queries, and of all keys or all values.
  [[nodiscard]] constexpr int64_t query_width() const { return heads * head_dim; }
  [[nodiscard]] constexpr int64_t key_value_width() const { return key_value_heads * head_dim; }
  [[nodiscard]] constexpr int64_t qkv_width() const {
    return query_width() + 2 * key_value_width();
  }
};

// The adjacent parts of a row of qkv, and their first columns.
enum class QkvPart : int64_t { kQ, kK, kV };
constexpr int64_t first_column(const AttentionShape& s, QkvPart part) {
  return part == QkvPart::kQ ? 0 : s.query_width() + (int64_t(part) - 1) * s.key_value_width();
}

struct AttentionForward {
  AttentionShape shape;
  Tensor qkv;  // [B T, (H + 2 K) D]: Q, K and V next to each other, RoPE already applied
  Tensor out;  // [B T, H D]
  // [at least B H, T] fp32: natural logarithm of the sum of exponentials of the scaled scores,
  // needed by the backward pass.
  Tensor log_sum_exp;
  Tensor document_begin{};  // [1, B T] int32 if the scope is kDocument, else none
};

struct AttentionBackward {
  AttentionShape shape;
  Tensor qkv;               // [B T, (H + 2 K) D]
  Tensor out;               // [B T, H D]
  Tensor log_sum_exp;       // [B H, T] fp32
  Tensor d_out;             // [B T, H D]
  Tensor d_qkv;             // [B T, (H + 2 K) D], output
  Tensor document_begin{};  // same as in forward
};

class Attention {
 public:
  virtual ~Attention() = default;
  // Takes from `allocator` the scratch needed by calls up to this shape on tensors of `storage`
  // (fp32 or bf16).
  virtual void reserve(Allocator& allocator, const AttentionShape& shape, DType storage) = 0;
  virtual void forward(const AttentionForward& call) = 0;
  virtual void backward(const AttentionBackward& call) = 0;
  // Describes the implementation used for calls of this shape, and why not a faster one; empty if
  // the backend has only one. Queries a library at most once.
  virtual std::string in_use(const AttentionShape& /*shape*/, DType /*storage*/) { return {}; }
};

// FLOPs of the GEMMs over all causal (query, key) pairs, counting one document per row: S and O in
// forward; S again, dV, dP, dQ and dK in backward.
double flops_of(const AttentionForward& call);
double flops_of(const AttentionBackward& call);

// Throws LogicError unless the tensors have the shapes and types above.
void check_shapes(const AttentionForward& call);
void check_shapes(const AttentionBackward& call);

}  // namespace mpt
