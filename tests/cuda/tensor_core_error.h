// Error bound for a sum of FP8 products in a tensor core (docs/numerics.md "FP8 GEMMs on a GPU").
//
// Derived from Hopper's accumulator, the narrowest one: from every term, from the sum before the
// terms of an instruction and from the sum after them, it drops the bits more than 13 binary places
// below the largest of them. The order of terms is unknown, so the largest is assumed to be as
// large as a partial sum of any order can get: every truncation is toward zero, so a partial sum
// lies between minus the sum of all negative and the sum of all positive terms.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

namespace mpt::test {

// Error of a sum that stays in the tensor core.
inline double fast_error(std::span<const double> terms) {
  constexpr int kFractionBits = 13;
  constexpr size_t kTermsOfAnInstruction = 32;
  double up = 0, down = 0;
  for (const double term : terms) (term > 0 ? up : down) += std::fabs(term);
  const double most = std::max(up, down);
  if (most == 0) return 0;
  const double unit = std::ldexp(1.0, std::ilogb(most) - kFractionBits);
  const size_t instructions = (terms.size() + kTermsOfAnInstruction - 1) / kTermsOfAnInstruction;
  double error = 2 * double(instructions) * unit;  // for the sum before and after each
  for (const double term : terms) error += std::fmod(std::fabs(term), unit);
  return error;
}

// Error of a sum that is promoted to FP32 after every 128 terms.
inline double promoted_error(std::span<const double> terms) {
  constexpr size_t kTermsToPromotion = 128;
  double error = 0, size = 0;
  size_t promotions = 0;
  for (size_t i = 0; i < terms.size(); i += kTermsToPromotion, ++promotions)
    error += fast_error(terms.subspan(i, std::min(kTermsToPromotion, terms.size() - i)));
  for (const double term : terms) size += std::fabs(term);
  return error + double(promotions) * 0x1p-24 * size;
}

}  // namespace mpt::test
