// Philox4x32-10 counter-based random words (Salmon et al., "Parallel random numbers: as easy as 1,
// 2, 3").
//
// A word is a pure function of (seed, tensor, row, column, step, stream): it never depends on
// launch shape, thread count, rank or sharding. Coordinates are logical (unpadded, unsharded). For
// the use of each stream see docs/numerics.md "Streams".
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "core/host_device.h"

namespace mpt {

struct PhiloxBlock {
  uint32_t word[4];
};

// Purpose of a draw. Each use declares its own number where it draws (docs/numerics.md "Streams").
// Numbers are unique and never change, because checkpoints rely on them.
enum class RandomStream : uint32_t {};

// Synthetic data for diagnostics, measurements and tests.
inline constexpr RandomStream kSyntheticStream{7};

MPT_HD PhiloxBlock philox4x32(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter.word[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter.word[2];
    counter = {{static_cast<uint32_t>(p1 >> 32) ^ counter.word[1] ^ key0, static_cast<uint32_t>(p1),
                static_cast<uint32_t>(p0 >> 32) ^ counter.word[3] ^ key1,
                static_cast<uint32_t>(p0)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// The coordinates of a draw; `column` selects one of the four words of its block.
struct RandomCounter {
  uint64_t seed;
  uint32_t tensor;
  uint32_t row;
  uint32_t step;
  RandomStream stream;

  // The four words of columns 4*block .. 4*block+3.
  MPT_HD PhiloxBlock block(uint32_t block_of_columns) const {
    const PhiloxBlock counter{
        {block_of_columns, row, step, static_cast<uint32_t>(stream) << 16 | tensor}};
    return philox4x32(counter, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  }
  MPT_HD uint32_t word(uint32_t column) const { return block(column >> 2).word[column & 3]; }
};

// Normally distributed numbers on the host, in FP64, from Philox words (Box and Muller;
// docs/numerics.md "Normal numbers").
//
// The four words of a block give the normals of four consecutive columns:
//   u1 = (x[2p] + 1) 2^-32, u2 = x[2p+1] 2^-32, R = sqrt(-2 ln u1)
//   columns 2p, 2p+1: R cos 2 pi u2, R sin 2 pi u2

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
