// The exponential of softmaxes, whose argument is a score minus the largest.
#pragma once

#include "core/scalar_math.h"

namespace mpt {

// Of softmax_exp, wherever it is written.
namespace softmax {
inline constexpr float kLeast = -104.0f;                // e^x is 0 from there down
inline constexpr float kBias = 64.0f;                   // of the power of two
inline constexpr float kUnbias = 0x1p-64f;              // takes it away again
inline constexpr uint32_t kExponentOfOne = 0x3F800000;  // 127 << 23: the bits of 1.0f
}  // namespace softmax

// exp_of to the bit for x <= 40, in two thirds of its instructions: 2^(n + 64) is a float for every n from
// there down to where e^x becomes 0, so that one exact factor and one that rounds are enough. Larger x are
// undefined. row_vector.h has it for several vectors.
MPT_HD float softmax_exp(float x) {
#ifdef MPT_ON_GPU
  return std::exp(x);
#else
  const auto [shifted, fraction] = exp_parts(max_of(softmax::kLeast, x), softmax::kBias);  // a NaN passes
  return fraction * float_of((bits_of(shifted) << 23) + softmax::kExponentOfOne) * softmax::kUnbias;
#endif
}

}  // namespace mpt
