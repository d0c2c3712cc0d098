// How cuDNN's attention is kept within documents: by a bias of the scores, the same for all heads.
//
//   bias[b, t, s] = 0 where key s does not lie before the document of query t, else kUnseenBias
//
// Keys behind the query are left to the causal mask. Legend as in device/attention.h.
//
// The shapes are those of rows, so plans and captured graphs serve every step. cuDNN's ragged
// sequences would leave out what is not seen, but there are as many as documents, another number
// every step; the deterministic backward pass keeps a [T, T] matrix of every one of them, and on
// Ampere it refuses them.
#pragma once

#include <cstdint>

#include "device/attention.h"
#include "device/memory.h"

struct CUstream_st;

namespace mpt {

// Makes the exponential of a score 0 beside that of any key that is seen. Finite: a tile of which a
// query sees nothing gives no NaN, and vanishes when the query's own document comes.
constexpr float kUnseenBias = -0x1p30f;

constexpr int64_t kBiasAlignment = 256;   // bytes, of what follows the bias
constexpr int64_t kBiasPackElements = 8;  // bf16 numbers of one store

// Elements from one query to the next.
constexpr int64_t document_bias_stride(int64_t seq_len) {
  return align_up(seq_len, kBiasPackElements);
}
// Bytes of bf16 numbers for all sequences of the shape; none where attention is over rows.
constexpr int64_t document_bias_bytes(const AttentionShape& s) {
  if (s.scope == AttentionScope::kRow) return 0;
  return align_up(s.batch * s.seq_len * document_bias_stride(s.seq_len) * size_of(DType::kBF16),
                  kBiasAlignment);
}

// Enqueues the bias of some sequences. `document_begin` is that of the first of them, on the GPU;
// the bias begins at a multiple of 16 bytes.
struct DocumentBias {
  const int32_t* document_begin;  // [B, T]
  int64_t sequences, tokens;      // B, T
  void* bias;                     // [B, T, document_bias_stride(T)] bf16
};
void write_document_bias(const DocumentBias& call, CUstream_st* stream);

}  // namespace mpt
