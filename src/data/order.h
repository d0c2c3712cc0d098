// The order of training sequences: a seeded permutation of each epoch, evaluated one index at a time.
//
// Equation: a balanced Feistel network of 8 rounds on the smallest even number of bits that holds n, its
// round function a Philox word of (seed, epoch, half, round), walked along its cycle until the result is
// below n (Black and Rogaway, "Ciphers with arbitrary finite domains"). O(1) memory, at most about four
// evaluations on average, the same on every platform. The values are part of every checkpoint's meaning and
// never change (docs/numerics.md "Data order").
#pragma once

#include <cstdint>

namespace mpt {

struct ShuffleKey {
  uint64_t seed;
  int64_t epoch;  // 0 <= epoch < 2^32
};

// A bijection of [0, n) for every key; 0 <= i < n.
int64_t permuted_index(ShuffleKey key, int64_t n, int64_t i);

}  // namespace mpt
