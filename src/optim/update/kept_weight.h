// Residuals: the bits that rounding to the stored format drops, kept for each weight
// (docs/numerics.md "Exact weights").
//
// A residual type K provides
//   K::Code                      the number kept with each weight; 0 if the weight was never
//                                updated (Fp32Copy: the weight itself)
//   K::exact(w, code)            the weight as the rule sees it
//   K::split(exact, w, code)     w: the part rounded to nearest and stored; code: the part kept
#pragma once

#include <cmath>
#include <cstdint>

#include "core/bf16.h"
#include "core/scalar_math.h"

namespace mpt {

// Lower half of an FP32 number whose upper half, rounded half away from zero, is the BF16 weight.
// exact() restores the FP32 number bit for bit.
struct Remainder {
  using Code = int16_t;

  MPT_HD static float exact(float w, Code code) {
    return float_of(bits_of(w) + static_cast<uint32_t>(int32_t{code}));
  }
  MPT_HD static void split(float exact, float& w, Code& code) {
    const uint32_t bits = bits_of(exact), upper = (bits + 0x8000u) & 0xffff0000u;
    w = float_of(upper);
    code = static_cast<Code>(static_cast<int32_t>(bits - upper));
  }
};

// Rounding error of a BF16 weight in 127ths of half an ulp (FlashOptim).
struct UlpResidual {
  using Code = int8_t;

  MPT_HD static float exact(float w, Code code) {
    return std::fma(float(code), half_ulp(w) * (1.0f / 127), w);
  }
  MPT_HD static void split(float exact, float& w, Code& code) {
    w = rounded_to<bf16>(exact);
    const float units = 127.0f * ((exact - w) / half_ulp(w));
    code = static_cast<Code>(std::rint(clamp_to(units, -127.0f, 127.0f)));
  }

 private:
  // 2^(e - 8) for 2^e <= |w| < 2^(e + 1). Smaller weights use the value of 2^-100: they keep no
  // residual, and no factor is subnormal.
  MPT_HD static float half_ulp(float w) {
    const uint32_t exponent = max_of(bits_of(w) >> 23 & 0xffu, 27u);
    return float_of((exponent - 8) << 23);
  }
};

// FP32 copy, for weights of any format.
struct Fp32Copy {
  using Code = float;

  MPT_HD static float exact(float, Code code) { return code; }
  MPT_HD static void split(float exact, float& w, Code& code) { w = code = exact; }
};

}  // namespace mpt
