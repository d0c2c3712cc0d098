// Fused multiply-add of FP32 vectors without the instruction: same bits, many times slower.
//
// s = a b + c in FP64, where the product is exact. Rounding s to FP32 would round twice; if s was
// rounded to odd, the result equals that of rounding once, because FP64 has more than two bits
// beyond twice those of FP32 (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums",
// 2008).
#pragma once

#include <cstdint>

#include "core/host_device.h"

namespace mpt {

// Vector: of floats, by the GCC/Clang vector extension.
template <class Vector>
MPT_ALWAYS_INLINE inline Vector software_fma(Vector a, Vector b, Vector c) {
  constexpr int kLanes = sizeof(Vector) / sizeof(float);
  // GCC 12 accepts no other alias for such a type in a template.
  typedef double Doubles __attribute__((vector_size(8 * kLanes)));
  typedef int64_t Bits __attribute__((vector_size(8 * kLanes)));
  const Doubles product = __builtin_convertvector(a, Doubles) * __builtin_convertvector(b, Doubles),
                addend = __builtin_convertvector(c, Doubles), sum = product + addend,
                part = sum - product;
  // Error of rounding the sum to nearest; NaN next to infinities.
  const Doubles error = (product - (sum - part)) + (addend - part);
  // An inexact sum whose last bit is 0 becomes its neighbour on the side of the exact one.
  const Bits inexact = Bits(error < 0.0) | Bits(error > 0.0), even = (Bits(sum) & 1) - 1,
             neighbour = ((Bits(sum) ^ Bits(error)) >> 63) | 1;
  return __builtin_convertvector(Doubles(Bits(sum) + (neighbour & inexact & even)), Vector);
}

}  // namespace mpt
