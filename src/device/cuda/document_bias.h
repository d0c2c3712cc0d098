// Keeps cuDNN's attention within documents by adding a bias to the scores, the same for all heads.
//
//   bias[b, t, s] = 0 unless key s precedes the document of query t; then kUnseenBias
//
// Keys after the query are left to the causal mask. Legend as in device/attention.h.
//
// Shapes depend on rows only, so plans and captured graphs serve every step. cuDNN's ragged
// sequences would skip what is not seen, but their number, that of the documents, changes every
// step; the deterministic backward pass keeps a [T, T] matrix of every one of them, and on Ampere
// it refuses them.
#pragma once

#include <cstdint>

#include "device/attention.h"
#include "device/memory.h"

struct CUstream_st;

namespace mpt {

// Makes the exponential of a score 0 relative to that of any seen key. Finite: a tile in which a
// query sees nothing gives no NaN, and vanishes once the query's own document follows.
constexpr float kUnseenBias = -0x1p30f;

constexpr int64_t kBiasAlignment = 256;   // bytes; start of what follows the bias
constexpr int64_t kBiasPackElements = 8;  // bf16 numbers per store

// Elements from one query to the next.
constexpr int64_t document_bias_stride(int64_t seq_len) {
  return align_up(seq_len, kBiasPackElements);
}
// Size of the bf16 numbers for all sequences of the shape; 0 if attention is over rows.
constexpr int64_t document_bias_bytes(const AttentionShape& s) {
  if (s.scope == AttentionScope::kRow) return 0;
  return align_up(s.batch * s.seq_len * document_bias_stride(s.seq_len) * size_of(DType::kBF16),
                  kBiasAlignment);
}

// Enqueues the bias of some sequences. `document_begin` points to the first of them, on the GPU;
// the bias must be aligned to 16 bytes.
struct DocumentBias {
  const int32_t* document_begin;  // [B, T]
  int64_t sequences, tokens;      // B, T
  void* bias;                     // [B, T, document_bias_stride(T)] bf16
};
void write_document_bias(const DocumentBias& call, CUstream_st* stream);

}  // namespace mpt
