// A GPU's fast intrinsics with the largest errors that NVIDIA's CUDA C++ Programming Guide permits
// ("Intrinsic Functions", for a build without -ftz=true and -use_fast_math), to test bounds derived
// from it. The size and sign of an error depend on the argument's bits.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace fake_cuda::detail {

inline uint32_t mixed_bits(float x, float y) {
  uint32_t u, v;
  memcpy(&u, &x, sizeof u);
  memcpy(&v, &y, sizeof v);
  u = (u ^ v * 0x9E3779B9u) * 0x85EBCA6Bu;
  u = (u ^ u >> 13) * 0xC2B2AE35u;
  return u ^ u >> 16;
}

// exact, moved up or down by the whole bound or by a part of it.
inline float moved(double exact, double units, uint32_t random) {
  const double unit = std::ldexp(1.0, std::ilogb(float(exact)) - 23);
  const double part = random % 4 < 2 ? 1.0 : double(random >> 8) * 0x1p-24;
  const double error = (units - 0.5) * part * (random % 2 == 0 ? 1 : -1);  // rounded once more
  const float result = float(exact + error * unit);
  return std::isfinite(result) ? result : float(exact);
}
inline bool is_ordinary(float x) { return std::isfinite(x) && std::fabs(x) >= 0x1p-126f; }

}  // namespace fake_cuda::detail

// Error of at most 2 + floor(|1.173 x|) ulps.
inline float __expf(float x) {
  const double exact = std::exp(double(x));
  if (!fake_cuda::detail::is_ordinary(float(exact))) return float(exact);
  return fake_cuda::detail::moved(exact, 2 + std::floor(std::fabs(1.173 * double(x))),
                                  fake_cuda::detail::mixed_bits(x, x));
}

// Error of at most 2 ulps for |y| in [2^-126, 2^126]; beyond that 0, or NaN if x is infinite.
inline float __fdividef(float x, float y) {
  if (std::fabs(y) > 0x1p126f && !std::isnan(x)) return std::isinf(x) ? NAN : 0.0f * (x / y);
  const double exact = double(x) / double(y);
  if (!fake_cuda::detail::is_ordinary(float(exact))) return float(exact);
  return fake_cuda::detail::moved(exact, 2, fake_cuda::detail::mixed_bits(x, y));
}
