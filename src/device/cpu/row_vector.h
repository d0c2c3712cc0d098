// Vector operations on rows of scores. Native-width vectors (GCC/Clang extension); sums are taken
// in the same order, with the same bits, at any width.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>

#include "core/host_device.h"
#include "core/scalar_math.h"
#include "core/softmax_exp.h"
#include "device/cpu/gemm_kernel.h"
#include "device/cpu/tile_gemm.h"

namespace mpt {

using RowVector = TileVector;
using RowBits = uint32_t __attribute__((vector_size(sizeof(RowVector))));

// Maximum; b where a is NaN, as in max_of.
inline RowVector larger(RowVector a, RowVector b) { return a > b ? a : b; }
inline RowVector sum(RowVector a, RowVector b) { return a + b; }

// Several vectors taken through a chain of operations together, to hide instruction latency.
template <int N>
struct RowVectors {
  RowVector part[N];
  RowVectors() = default;
  explicit RowVectors(float x) {
    for (int i = 0; i < N; ++i) part[i] = RowVector{} + x;
  }
  template <class F>
  MPT_ALWAYS_INLINE static RowVectors of_each(const F& f) {
    RowVectors all;
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) all.part[i] = f(i);
    return all;
  }
  MPT_ALWAYS_INLINE friend RowVectors operator+(const RowVectors& a, const RowVectors& b) {
    return of_each([&](int i) { return a.part[i] + b.part[i]; });
  }
  MPT_ALWAYS_INLINE friend RowVectors operator-(const RowVectors& a, const RowVectors& b) {
    return of_each([&](int i) { return a.part[i] - b.part[i]; });
  }
  MPT_ALWAYS_INLINE friend RowVectors operator*(const RowVectors& a, const RowVectors& b) {
    return of_each([&](int i) { return a.part[i] * b.part[i]; });
  }
  MPT_ALWAYS_INLINE friend RowVectors fma_of(const RowVectors& a, const RowVectors& b,
                                             const RowVectors& c) {
    return of_each([&](int i) { return fma_of(a.part[i], b.part[i], c.part[i]); });
  }
};

// Rotates the lanes: lane i gets lane i + kDistance, modulo the number of lanes.
template <int kDistance>
RowVector lanes_apart(RowVector x) {
  return [&]<int... kLane>(std::integer_sequence<int, kLane...>) {
    return __builtin_shufflevector(x, x, (kLane + kDistance) % kTileLanes...);
  }
  (std::make_integer_sequence<int, kTileLanes>{});
}

// Reduces kTileColumns floats by f in a fixed order: pairs 8 apart, then 4, 2 and 1.
template <class F>
float folded(const RowVector* parts, const F& f) {
  constexpr int kParts = kTileColumns / kTileLanes;
  static_assert(kTileColumns == 16 && kParts <= 4);
  RowVector x = parts[0];
  if constexpr (kParts == 2) x = f(parts[0], parts[1]);
  if constexpr (kParts == 4) x = f(f(parts[0], parts[2]), f(parts[1], parts[3]));
  if constexpr (kTileLanes > 8) x = f(x, lanes_apart<8>(x));
  if constexpr (kTileLanes > 4) x = f(x, lanes_apart<4>(x));
  x = f(x, lanes_apart<2>(x));
  x = f(x, lanes_apart<1>(x));
  return x[0];
}

template <int N>
MPT_ALWAYS_INLINE inline RowVectors<N> softmax_exp(const RowVectors<N>& x) {
  using All = RowVectors<N>;
  const auto e = exp_parts(
      All::of_each([&](int i) { return larger(RowVector{} + softmax::kLeast, x.part[i]); }),
      softmax::kBias);
  const All factor = All::of_each([&](int i) {
    return std::bit_cast<RowVector>((std::bit_cast<RowBits>(e.shifted.part[i]) << 23) +
                                    softmax::kExponentOfOne);
  });
  return e.fraction * factor * All(softmax::kUnbias);
}

}  // namespace mpt
