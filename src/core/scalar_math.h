// Scalar arithmetic shared by host and device: bit casts, exact rounding helpers and a portable
// exponential.
//
// Everything here is branch-free or branches uniformly, so that loops vectorise, and gives the same
// bits on every machine that rounds IEEE-754 binary32 correctly (the exponential: on every CPU).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

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

// Maximum and minimum that return the second argument if the first is NaN (one instruction on x86
// and NVIDIA).
template <class T>
MPT_HD T max_of(T a, T b) {
  return a > b ? a : b;
}
template <class T>
MPT_HD T min_of(T a, T b) {
  return a < b ? a : b;
}

// fmin(hi, fmax(lo, x)); a NaN becomes lo, as with fmax (docs/numerics.md "Scalar arithmetic").
template <class T>
MPT_HD T clamp_to(T x, T lo, T hi) {
  return min_of(max_of(x, lo), hi);
}

// a b + c rounded once; vector types define their own overload.
MPT_HD float fma_of(float a, float b, float c) { return std::fma(a, b, c); }

// e^x = fraction 2^n; the lowest bits of `shifted` hold n + bias. T is float or a vector of floats.
template <class T>
struct ExpParts {
  T shifted, fraction;
};

// x = n ln 2 + r with ln 2 split in two parts (Cody and Waite), then a degree-6 polynomial in r
// (Cephes expf). Requires |n| < 2^21; a NaN is preserved in the fraction.
template <class T>
[[gnu::always_inline]] MPT_HD ExpParts<T> exp_parts(T x, float bias) {
  const auto all = [](float value) { return T(value); };
  const T shift = all(12582912.0f + bias);  // 1.5 * 2^23: adding it rounds to an integer
  const T shifted = fma_of(x, all(1.44269504088896341f), shift), n = shifted - shift;
  T r = fma_of(n, all(-0.693359375f), x);
  r = fma_of(n, all(2.12194440e-4f), r);
  T p = all(1.9875691500e-4f);
  p = fma_of(p, r, all(1.3981999507e-3f));
  p = fma_of(p, r, all(8.3334519073e-3f));
  p = fma_of(p, r, all(4.1665795894e-2f));
  p = fma_of(p, r, all(1.6666665459e-1f));
  p = fma_of(p, r, all(5.0000001201e-1f));
  return {shifted, fma_of(p, r * r, r) + all(1.0f)};
}

// e^x within 2 ulp (1.01 measured) for every x: subnormal below -87.33, 0 from -104 down, +Inf
// above 88.73; NaN stays NaN. The GPU uses the math library's, equally accurate in a third of the
// instructions.
MPT_HD float exp_of(float x) {
#ifdef MPT_ON_GPU
  return std::exp(x);
#else
  const float clamped = min_of(89.0f, max_of(-104.0f, x));  // NaN passes through both
  const auto [shifted, fraction] = exp_parts(clamped, 0.0f);
  // Applies 2^n as two factors, because n ranges from -150 to 128.
  const int32_t exponent = static_cast<int32_t>(bits_of(shifted)) - 0x4B400000;
  const int32_t half = exponent >> 1;
  const float lower = float_of(static_cast<uint32_t>(half + 127) << 23);
  const float upper = float_of(static_cast<uint32_t>(exponent - half + 127) << 23);
  return fraction * lower * upper;
#endif
}
// The derivative tests also evaluate the formulas in double and complex double.
template <class T>
MPT_HD T exp_of(T x) {
  using std::exp;
  return exp(x);
}

}  // namespace mpt
