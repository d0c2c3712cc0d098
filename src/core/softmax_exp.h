// The exponential in softmax, whose argument is a score minus the maximum.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/scalar_math.h"

namespace mpt {

// Constants of softmax_exp, shared with its vector version.
namespace softmax {
inline constexpr float kLeast = -104.0f;                // e^x is 0 from here down
inline constexpr float kBias = 64.0f;                   // added to the exponent of the power of two
inline constexpr float kUnbias = 0x1p-64f;              // removes the bias
inline constexpr uint32_t kExponentOfOne = 0x3F800000;  // 127 << 23: the bits of 1.0f
}  // namespace softmax

// Bit-identical to exp_of for x <= 40, in two thirds of the instructions: 2^(n + 64) is a float for
// every n down to where e^x underflows to 0, so one exact factor and one rounding factor suffice.
// Undefined for larger x. For several vectors at once see row_vector.h.
MPT_HD float softmax_exp(float x) {
#ifdef MPT_ON_GPU
  return std::exp(x);
#else
  const auto [shifted, fraction] =
      exp_parts(max_of(softmax::kLeast, x), softmax::kBias);  // a NaN passes
  return fraction * float_of((bits_of(shifted) << 23) + softmax::kExponentOfOne) * softmax::kUnbias;
#endif
}

}  // namespace mpt
