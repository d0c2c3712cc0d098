// The exponential of softmaxes, whose argument is a score minus the largest.
#pragma once

#include "core/scalar_math.h"

namespace mpt {

// exp_of to the bit for x <= 40, in two thirds of its instructions: 2^(n + 64) is a float for every n from
// there down to where e^x becomes 0, so that one exact factor and one that rounds are enough. Larger x are
// undefined. row_vector.h has it for several vectors.
MPT_HD float softmax_exp(float x) {
#ifdef MPT_ON_GPU
  return std::exp(x);
#else
  const auto [shifted, fraction] = exp_parts(max_of(-104.0f, x), 64.0f);          // a NaN passes through
  return fraction * float_of((bits_of(shifted) << 23) + 0x3F800000u) * 0x1p-64f;  // 1.0f is 127 << 23
#endif
}

}  // namespace mpt
