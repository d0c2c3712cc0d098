// Gradients of q, k and v before RoPE, rotated back during their cast: a source of casts
// (precision/fp8_cast.cuh).
#pragma once

#include "model/cuda/computed_input.cuh"
#include "model/formulas/rope.h"

namespace mpt {

// Rows and tables are 16-byte aligned; half a head is a multiple of a lane's values.
struct PackedRotation {
  const bf16* qkv;  // [N, (H + 2 K) D]
  int64_t stride;
  const float *cosine, *sine;  // [positions, D/2]
  int rotated;                 // columns of Q and K, (H + K) D
  int head_dim;
  uint32_t seq_len, first_position;  // token n is at first_position + n % seq_len
  float direction;
  const int32_t* document_begin;  // see Rope
};

template <>
struct LaneValues<PackedRotation> {
  static constexpr int kAtOnce = 2;

  MPT_HD void fetch(const PackedRotation& source, BlockSpan span) {
    const LanePart<WarpGroup> part(WarpGroup{}, span);
    const auto column = static_cast<int>(part.col);
    const bf16* const from = source.qkv + span.row * source.stride + column;
    own_.fetch(from, part);
    rotates_ = part.size > 0 && column < source.rotated;
    if (!rotates_) return;
    const int half = source.head_dim / 2, in_head = column % source.head_dim;
    first_ = in_head < half;
    partner_.fetch(first_ ? from + half : from - half, part);
    const auto token = static_cast<uint32_t>(span.row);
    uint32_t position = source.first_position + token % source.seq_len;
    if (source.document_begin != nullptr)
      position -= static_cast<uint32_t>(source.document_begin[token]);
    const int64_t angle = int64_t{position} * half + (first_ ? in_head : in_head - half);
    cosine_ = load_pack<kLaneCodes>(source.cosine + angle);
    sine_ = load_pack<kLaneCodes>(source.sine + angle);
    direction_ = source.direction;
  }
  // Rotated values are rounded to bf16, as in memory.
  MPT_HD void get(float (&values)[kLaneCodes]) const {
#pragma unroll
    for (int k = 0; k < kLaneCodes; ++k) {
      values[k] = to_float(own_.at(k));
      if (!rotates_) continue;
      const float other = to_float(partner_.at(k));
      const RotatedPair y = rotated(first_ ? values[k] : other, first_ ? other : values[k],
                                    cosine_.at[k], direction_ * sine_.at[k]);
      values[k] = rounded_to<bf16>(first_ ? y.first : y.second);
    }
  }

 private:
  Bf16Words own_, partner_;  // of the same pairs
  Pack<float, kLaneCodes> cosine_, sine_;
  float direction_;
  bool rotates_, first_;  // whether own_ is the first of its pair
};

}  // namespace mpt
