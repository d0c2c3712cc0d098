// Exponential and quotient for formulas that are not specified bit for bit: on the CPU the same
// bits as exp_of() and division, on a GPU approximations by its hardware (docs/numerics.md
// "Exponential").
#pragma once

#include "core/host_device.h"
#include "core/scalar_math.h"

namespace mpt {

// e^x; on a GPU within 2 + 1.173 |x| ulps.
MPT_HD float approximate_exp(float x) {
#ifdef MPT_ON_GPU
  return __expf(x);
#else
  return exp_of(x);
#endif
}

// x / y; on a GPU within 2 ulps for 2^-126 <= |y| <= 2^126, and 0 for larger y.
MPT_HD float approximate_quotient(float x, float y) {
#ifdef MPT_ON_GPU
  return __fdividef(x, y);
#else
  return x / y;
#endif
}

// The derivative tests also evaluate the formulas in double and complex double.
template <class T>
MPT_HD T approximate_exp(T x) {
  return exp_of(x);
}
template <class T>
MPT_HD T approximate_quotient(T x, T y) {
  return x / y;
}

}  // namespace mpt
