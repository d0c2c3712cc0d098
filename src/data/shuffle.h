// Shuffling: a seeded permutation of each epoch, evaluated one index at a time.
//
// Equation: a balanced Feistel network of 8 rounds on the smallest even number of bits that holds
// n, whose round function is a Philox word of (seed, epoch, half, round), walked along its cycle
// until the result is below n (Black and Rogaway, "Ciphers with arbitrary finite domains"). O(1)
// memory, about four evaluations at most on average, identical on every platform. The values are
// part of every checkpoint's meaning and never change (docs/numerics.md "Data order").
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/enum_names.h"
#include "core/random.h"

namespace mpt {

// Also used for other draws from a corpus: validation documents and the lines a tokenizer is
// trained on.
inline constexpr RandomStream kDataOrderStream{6};

inline constexpr int64_t kMostEpochs = int64_t{1} << 32;

struct ShuffleKey {
  uint64_t seed;
  int64_t epoch;  // 0 <= epoch < kMostEpochs
};

// Bijection of [0, n) for every key; 0 <= i < n.
int64_t permuted_index(ShuffleKey key, int64_t n, int64_t i);

enum class Shuffle { kNo, kYes };
template <>
struct EnumNames<Shuffle> {
  static constexpr std::array<std::string_view, 2> kNames{"no", "yes"};
};

}  // namespace mpt
