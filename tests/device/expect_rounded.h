// A stored result compared with its exact value: rounding of any value within the error of the
// computation is accepted.
#pragma once

#include <gtest/gtest.h>

#include "core/bf16.h"
#include "core/tensor.h"

namespace mpt::test {

// The largest relative error of one rounding: half the spacing of 24 or 8 significant bits.
inline double unit_of(DType dtype) { return dtype == DType::kF32 ? 0x1p-24 : 0x1p-8; }

// Rounding is monotone: a result computed within `error` of `exact` and rounded once lies between
// these bounds.
inline testing::AssertionResult is_rounded(float found, double exact, double error, DType dtype) {
  const auto round = [=](double x) {
    return dtype == DType::kF32 ? float(x) : rounded_to<bf16>(float(x));
  };
  const float low = round(exact - error), high = round(exact + error);
  if (found >= low && found <= high) return testing::AssertionSuccess();
  return testing::AssertionFailure() << found << " for " << exact << " with error " << error
                                     << ": expected " << low << " to " << high;
}

}  // namespace mpt::test
