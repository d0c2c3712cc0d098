// Scalar arithmetic shared by host and device: bit casts, exact rounding helpers and a portable exponential.
//
// Everything here is branch-free or branches uniformly, so that loops over it vectorise, and gives the same
// bits on every machine that rounds IEEE-754 binary32 correctly (the exponential: on every CPU).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/host_device.h"

namespace mpt {

MPT_HD uint32_t bits_of(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}

MPT_HD float float_of(uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

// Maximum and minimum that return the second argument when the first is NaN (one instruction on x86 and
// NVIDIA).
template <class T>
MPT_HD T max_of(T a, T b) {
  return a > b ? a : b;
}
template <class T>
MPT_HD T min_of(T a, T b) {
  return a < b ? a : b;
}

// fmin(hi, fmax(lo, x)); a NaN becomes lo, as with fmax (NUMERICS "Conventions").
template <class T>
MPT_HD T clamp_to(T x, T lo, T hi) {
  return min_of(max_of(x, lo), hi);
}

// e^x within 2 ulp (1.01 measured) for every x: subnormal below -87.33, 0 from -104 down, +Inf above 88.73;
// NaN stays NaN. x = n ln 2 + r with ln 2 in two parts (Cody and Waite), then a degree-6 polynomial (Cephes
// expf). On the GPU its library's, which is as close in a third of the instructions.
MPT_HD float exp_of(float x) {
#ifdef MPT_ON_GPU
  return std::exp(x);
#else
  const float kLog2e = 1.44269504088896341f;
  const float kLn2Hi = 0.693359375f, kLn2Lo = -2.12194440e-4f;
  const float kShift = 12582912.0f;                         // 1.5 * 2^23: adding it rounds to an integer
  const float clamped = min_of(89.0f, max_of(-104.0f, x));  // a NaN passes through both
  const float shifted = std::fma(clamped, kLog2e, kShift);
  const float n = shifted - kShift;
  float r = std::fma(n, -kLn2Hi, clamped);
  r = std::fma(n, -kLn2Lo, r);
  float p = 1.9875691500e-4f;
  p = std::fma(p, r, 1.3981999507e-3f);
  p = std::fma(p, r, 8.3334519073e-3f);
  p = std::fma(p, r, 4.1665795894e-2f);
  p = std::fma(p, r, 1.6666665459e-1f);
  p = std::fma(p, r, 5.0000001201e-1f);
  p = std::fma(p, r * r, r) + 1.0f;
  // 2^n in two factors, because n reaches 128 at the top and -150 at the bottom.
  const int32_t exponent = static_cast<int32_t>(bits_of(shifted)) - 0x4B400000;
  const int32_t half = exponent >> 1;
  const float lower = float_of(static_cast<uint32_t>(half + 127) << 23);
  const float upper = float_of(static_cast<uint32_t>(exponent - half + 127) << 23);
  return p * lower * upper;
#endif
}
// The formulas are also evaluated in double and complex double by the derivative tests.
template <class T>
MPT_HD T exp_of(T x) {
  using std::exp;
  return exp(x);
}

}  // namespace mpt
