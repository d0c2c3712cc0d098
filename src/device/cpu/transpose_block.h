// Transposes blocks of 8 x 8 floats in registers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/host_device.h"

namespace mpt {

inline constexpr int kBlock = 8;
using BlockRow = float __attribute__((vector_size(4 * kBlock), aligned(4), may_alias));

// Transposes in place: interleaves the first half of the rows with the second, three times.
inline void transpose_block(BlockRow (&rows)[kBlock]) {
  for (int round = 0; round < 3; ++round) {
    BlockRow next[kBlock];
    for (int64_t i = 0; i < kBlock / 2; ++i) {
      const BlockRow &a = rows[i], &b = rows[i + kBlock / 2];
      next[2 * i] = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
      next[2 * i + 1] = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
    }
    std::copy_n(next, kBlock, rows);
  }
}

// target[column][row] = value(source[row][column]) for a whole block. Only height rows and width
// columns exist; the rest is zero-filled. Strides in elements.
template <class T, class F>
MPT_ALWAYS_INLINE inline void transpose_block(const T* source, int64_t source_stride,
                                              int64_t height, int64_t width, const F& value,
                                              float* target, int64_t target_stride) {
  BlockRow rows[kBlock] = {};
  for (int64_t r = 0; r < height; ++r) {
    const T* from = source + r * source_stride;
    if (width == kBlock)
      for (int64_t c = 0; c < kBlock; ++c) rows[r][c] = value(from[c]);
    else
      for (int64_t c = 0; c < width; ++c) rows[r][c] = value(from[c]);
  }
  transpose_block(rows);
  for (int64_t c = 0; c < kBlock; ++c)
    *reinterpret_cast<BlockRow*>(target + c * target_stride) = rows[c];
}

}  // namespace mpt
