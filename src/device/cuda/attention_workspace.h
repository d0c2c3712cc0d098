// Scratch of cuDNN's attention, and how sequences share it; needs neither cuDNN nor a GPU.
//
// The deterministic backward pass keeps dP in bf16, [B, H, T, T] with T rounded up to tiles, so
// sequences are processed in groups whose scratch stays within kAttentionWorkspaceBytes. The other
// one adds to dQ in FP32, [B, H, T, D]. Within documents both passes also need a bias
// (document_bias.h), and use the same groups.
#pragma once

#include <algorithm>
#include <cstdint>

#include "device/attention.h"
#include "device/backends.h"
#include "device/cuda/document_bias.h"
#include "device/memory.h"

namespace mpt {

constexpr int64_t kAttentionQueryTile = 64;
constexpr int64_t kAttentionKeyTile = 128;

// Limit for a group of sequences; a single one may exceed it. 1 GiB of dP, plus what accompanies it
// from 256 tokens on: with 16 heads of 1,024 tokens this gives 32 sequences, not 31.
constexpr int64_t kAttentionWorkspaceBytes = (int64_t{1} << 30) + (int64_t{1} << 24);

// Size of a backward pass's workspace for all sequences of the shape at once, as requested by cuDNN
// 9.19 on Hopper: rowsum(dO O) [B,H,T] in fp32 and dP or dQ, and with grouped queries dK and dV of
// every query head in bf16. The deterministic pass takes less on Ampere and Blackwell, the other
// one up to twice as much on Ampere.
constexpr int64_t attention_workspace(const AttentionShape& s,
                                      DeterministicAttention deterministic) {
  constexpr int64_t kFixed = 256;
  const int64_t queries = align_up(s.seq_len, kAttentionQueryTile),
                keys = align_up(s.seq_len, kAttentionKeyTile);
  const int64_t matrix = deterministic == DeterministicAttention::kOn ? queries * keys * 2
                                                                      : s.seq_len * s.head_dim * 4;
  const int64_t parts = s.readers() == 1 ? 0 : 2 * s.seq_len * s.head_dim * 2;
  return s.batch * s.heads * (matrix + parts + s.seq_len * 4) + kFixed;
}

// Includes the documents' bias, which precedes the workspace.
constexpr int64_t attention_scratch(const AttentionShape& s, DeterministicAttention deterministic) {
  return document_bias_bytes(s) + attention_workspace(s, deterministic);
}

// Largest number of sequences in a group: at least one, at most all.
constexpr int64_t most_attention_sequences(const AttentionShape& shape,
                                           DeterministicAttention deterministic) {
  AttentionShape one = shape;
  one.batch = 1;
  return std::clamp<int64_t>(kAttentionWorkspaceBytes / attention_scratch(one, deterministic), 1,
                             std::max<int64_t>(shape.batch, 1));
}

// Splits sequences into as few groups as the limit allows; group sizes differ by at most one.
struct AttentionGroups {
  int64_t sequences, count;

  // First sequence of `group`; for `count`, the end of the last group.
  [[nodiscard]] constexpr int64_t first(int64_t group) const { return group * sequences / count; }
  [[nodiscard]] constexpr int64_t fewest_sequences() const { return sequences / count; }
  [[nodiscard]] constexpr int64_t most_sequences() const { return (sequences + count - 1) / count; }
};
// Requires a nonempty shape.
constexpr AttentionGroups attention_groups(const AttentionShape& shape,
                                           DeterministicAttention deterministic) {
  const int64_t most = most_attention_sequences(shape, deterministic);
  return {.sequences = shape.batch, .count = (shape.batch + most - 1) / most};
}
// For the forward pass, which needs no groups if attention is over rows.
constexpr AttentionGroups forward_attention_groups(const AttentionShape& shape,
                                                   DeterministicAttention deterministic) {
  if (shape.scope == AttentionScope::kRow) return {.sequences = shape.batch, .count = 1};
  return attention_groups(shape, deterministic);
}

}  // namespace mpt
