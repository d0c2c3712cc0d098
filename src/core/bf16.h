// BF16 as a storage type: 16 bits on load and store, FP32 in between (docs/numerics.md "Element
// formats").
#pragma once

#include "core/scalar_math.h"

namespace mpt {

struct bf16 {
  uint16_t bits;
};

MPT_HD float to_float(bf16 x) { return float_of(static_cast<uint32_t>(x.bits) << 16); }
MPT_HD float to_float(float x) { return x; }

// Rounds to nearest, ties to even; any NaN becomes 7FFF; FP32 values beyond the largest BF16 round
// to infinity.
MPT_HD bf16 bf16_nearest(float x) {
#ifdef __CUDA_ARCH__
  bf16 nearest;  // same result in one instruction
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(nearest.bits) : "f"(x));
  return nearest;
#else
  const uint32_t u = bits_of(x);
  const uint32_t rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
  return {static_cast<uint16_t>(x != x ? 0x7FFFu : rounded)};
#endif
}

// Rounds up with probability (x - lower) / (upper - lower), at a resolution of 16 bits: the upper
// 16 bits of `word` decide. Infinities and values exact in BF16 are unchanged; a NaN becomes 7FFF.
// Values above the largest BF16 may become infinite (docs/numerics.md "Stochastic rounding").
MPT_HD bf16 bf16_stochastic(float x, uint32_t word) {
  const uint32_t u = bits_of(x);
  const bool finite = (u & 0x7F800000u) != 0x7F800000u;
  const uint32_t rounded = (u + (finite ? word >> 16 : 0u)) >> 16;
  return {static_cast<uint16_t>(x != x ? 0x7FFFu : rounded)};
}

// Like bf16_stochastic(), but a finite value never becomes infinite: it saturates at the largest
// BF16.
MPT_HD bf16 bf16_stochastic_saturating(float x, uint32_t word) {
  const uint32_t u = bits_of(x), rounded = bf16_stochastic(x, word).bits;
  const bool carried = (rounded & 0x7FFFu) == 0x7F80u && (u & 0x7F800000u) != 0x7F800000u;
  return {static_cast<uint16_t>(rounded - (carried ? 1u : 0u))};
}

// from_float<T>(x): x rounded to the storage type T.
template <class T>
MPT_HD T from_float(float x);
template <>
MPT_HD float from_float<float>(float x) {
  return x;
}
template <>
MPT_HD bf16 from_float<bf16>(float x) {
  return bf16_nearest(x);
}

// x after a round trip through the storage type T.
template <class T>
MPT_HD float rounded_to(float x) {
  return to_float(from_float<T>(x));
}

}  // namespace mpt
