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

// Coordinates of a draw; `column` selects one of the four words of its block.
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

}  // namespace mpt
