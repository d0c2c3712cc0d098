// Normally distributed numbers on the host, in FP64, from Philox words (Box and Muller;
// docs/numerics.md "Normal numbers").
//
// The four words of a block give the normals of four consecutive columns:
//   u1 = (x[2p] + 1) 2^-32, u2 = x[2p+1] 2^-32, R = sqrt(-2 ln u1)
//   columns 2p, 2p+1: R cos 2 pi u2, R sin 2 pi u2
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>

#include "core/random.h"

namespace mpt {

inline std::array<double, 4> normals_of(const PhiloxBlock& block) {
  std::array<double, 4> z{};
  for (size_t p = 0; p < 2; ++p) {
    const double u1 = (double(block.word[2 * p]) + 1.0) * 0x1p-32,
                 u2 = double(block.word[2 * p + 1]) * 0x1p-32;
    const double radius = std::sqrt(-2.0 * std::log(u1)), angle = 2.0 * std::numbers::pi * u2;
    z[2 * p] = radius * std::cos(angle);
    z[2 * p + 1] = radius * std::sin(angle);
  }
  return z;
}

// out[c] = float(std_dev * z_c) for columns 0 .. count-1 of the counter's row.
inline void fill_normals(const RandomCounter& counter, double std_dev, int64_t count, float* out) {
  for (int64_t first = 0; first < count; first += 4) {
    const std::array<double, 4> z = normals_of(counter.block(static_cast<uint32_t>(first / 4)));
    for (int64_t c = first; c < std::min(first + 4, count); ++c)
      out[c] = float(std_dev * z[size_t(c - first)]);
  }
}

}  // namespace mpt
