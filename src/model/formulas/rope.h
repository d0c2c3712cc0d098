// Rotary position embedding over the whole head, in the half-rotation layout of Hugging Face's
// LLaMA (Su et al.).
//
//   (x_i, x_{i+D/2}) <- (x_i cos - x_{i+D/2} sin, x_{i+D/2} cos + x_i sin),   angle = t * theta^(-2i/D)
// Backward is the rotation by the negative angle (docs/numerics.md "Rotary embedding").
#pragma once

#include <array>
#include <cstdint>

#include "core/bf16.h"
#include "core/group.h"
#include "core/host_device.h"

namespace mpt {

struct RotatedPair {
  float first, second;
};

MPT_HD RotatedPair rotated(float first, float second, float cosine, float sine) {
  return {first * cosine - second * sine, second * cosine + first * sine};
}

// One token: rotates its Q and K heads in place.
template <class T>
struct Rope {
  T* qkv;                 // [N, (H + 2 K) D]
  int64_t stride;         // of qkv's rows
  const float* cosine;    // [positions, D/2]
  const float* sine;      // [positions, D/2]
  int64_t rotated_heads;  // H + K: Q's, then K's
  int64_t head_dim;
  int64_t seq_len;  // token n is at position first_position + n % seq_len
  int64_t first_position;
  float direction;                          // +1 forward, -1 backward
  const int32_t* document_begin = nullptr;  // [N] if positions count from there, else null

  [[nodiscard]] MPT_HD int64_t position_of(int64_t token) const {
    const int64_t in_row = token % seq_len;
    return first_position + (document_begin == nullptr ? in_row : in_row - document_begin[token]);
  }

  [[nodiscard]] std::array<RowMemory, 1> memory(int64_t token) const {
    return {RowMemory::of(qkv + token * stride, rotated_heads * head_dim)};
  }

  template <class G>
  MPT_HD void operator()(G group, int64_t token) const {
    const int64_t half = head_dim / 2, position = position_of(token);
    const float *cos_row = cosine + position * half, *sin_row = sine + position * half;
    const float way = direction;
    for (int64_t head = 0; head < rotated_heads; ++head) {
      T* x = qkv + token * stride + head * head_dim;
      group.each(half, [=](int64_t i) {
        const RotatedPair y =
            rotated(to_float(x[i]), to_float(x[i + half]), cos_row[i], way * sin_row[i]);
        x[i] = from_float<T>(y.first);
        x[i + half] = from_float<T>(y.second);
      });
    }
  }
};

}  // namespace mpt
