// Models how processors sum dot products of BF16 numbers, by Intel's Software Developer's Manual:
// VDPBF16PS and TDPBF16PS. Both flush subnormal inputs and results to zero, round to nearest, and
// fuse each product with its addition.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

namespace mpt::test {

inline float value_of_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

inline float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
inline float flushed_fma(float a, float b, float c) {
  return flushed(std::fma(flushed(a), flushed(b), flushed(c)));
}
inline float flushed_sum(float a, float b) { return flushed(flushed(a) + flushed(b)); }

// One lane of VDPBF16PS: the second product of the pair is added first.
inline float vdpbf16ps(float sum, const uint16_t (&a)[2], const uint16_t (&b)[2]) {
  sum = flushed_fma(value_of_bf16(a[1]), value_of_bf16(b[1]), sum);
  return flushed_fma(value_of_bf16(a[0]), value_of_bf16(b[0]), sum);
}

// One element of TDPBF16PS: even and odd terms are summed separately, each from zero, and their sum
// is added to `sum`.
inline float tdpbf16ps(float sum, std::span<const uint16_t> a, std::span<const uint16_t> b) {
  float even = 0, odd = 0;
  for (size_t i = 0; i + 1 < a.size(); i += 2) {
    even = flushed_fma(value_of_bf16(a[i]), value_of_bf16(b[i]), even);
    odd = flushed_fma(value_of_bf16(a[i + 1]), value_of_bf16(b[i + 1]), odd);
  }
  return flushed_sum(sum, flushed_sum(even, odd));
}

}  // namespace mpt::test
