#include "data/shuffle.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/check.h"
#include "core/random.h"

namespace mpt {
namespace {

constexpr uint32_t kRounds = 8;

struct Feistel {
  ShuffleKey key;
  int half_bits;  // bits of each half, 1 to 32

  [[nodiscard]] uint64_t operator()(uint64_t value) const {
    const uint64_t mask = (uint64_t{1} << half_bits) - 1;
    uint64_t left = value >> half_bits, right = value & mask;
    for (uint32_t round = 0; round < kRounds; ++round) {
      const RandomCounter draw{.seed = key.seed,
                               .tensor = 0,
                               .row = static_cast<uint32_t>(right),
                               .step = static_cast<uint32_t>(key.epoch),
                               .stream = kDataOrderStream};
      const uint64_t next = left ^ (draw.word(round) & mask);
      left = right;
      right = next;
    }
    return left << half_bits | right;
  }
};

}  // namespace

int64_t permuted_index(ShuffleKey key, int64_t n, int64_t i) {
  check(i >= 0 && i < n, "index {} is outside a permutation of {}", i, n);
  check(key.epoch >= 0 && key.epoch < kMostEpochs, "epoch {} is out of range", key.epoch);
  if (n == 1) return 0;
  const int bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(n - 1)));
  const Feistel permute{key, (bits + 1) / 2};
  auto value = static_cast<uint64_t>(i);
  do {
    value = permute(value);
  } while (value >= static_cast<uint64_t>(n));
  return static_cast<int64_t>(value);
}

}  // namespace mpt
