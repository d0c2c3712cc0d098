// Division of many numbers by one divisor with IEEE-754 rounding: by division on the CPU, by
// multiplications on a GPU, with the same bits.
//
//   r = 1 / c;   q = x r;   x / c = q + (x - q c) r      each rounded once, sums of products as fma
// is x / c correctly rounded for every x and every normal c without overflow or underflow: the last
// value before rounding is so close to the quotient that it could round differently only near the
// midpoint of two numbers. tests/optim/shared_divisor_test.cpp tries all pairs of mantissas whose
// quotient lies there.
#pragma once

#include <cmath>

#include "core/host_device.h"

namespace mpt {

// A number between 2^-24 and 1, such as 1 - beta^t for any beta below 1.
struct SharedDivisor {
  float value, reciprocal;

  static SharedDivisor of(float value) { return {value, 1.0f / value}; }
};

// Dividends that quotient_by_products() takes: the remainder is not subnormal and the quotient is
// finite. Excludes 0, whose sign would depend on how a compiler negates.
inline constexpr float kLeastDividend = 0x1p-100f, kMostDividend = 0x1p+100f;

// x / c for kLeastDividend <= |x| <= kMostDividend.
MPT_HD float quotient_by_products(float x, SharedDivisor c) {
  const float near = x * c.reciprocal;
  const float remainder = std::fma(-near, c.value, x);
  return std::fma(remainder, c.reciprocal, near);
}

// x / c for every x, as computed on a GPU.
MPT_HD float quotient_on_gpu(float x, SharedDivisor c) {
  const float size = std::fabs(x);
  const bool in_range = size >= kLeastDividend && size <= kMostDividend;
  return in_range ? quotient_by_products(x, c) : x / c.value;
}

// x / c. The CPU divides vectors, which is as fast.
MPT_HD float quotient(float x, SharedDivisor c) {
#ifdef MPT_ON_GPU
  return quotient_on_gpu(x, c);
#else
  return x / c.value;
#endif
}

}  // namespace mpt
