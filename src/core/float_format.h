// Small floating-point formats as constexpr values, and the only conversions between FP32 and them
// (docs/numerics.md "Element formats" and "Stochastic rounding").
//
//   round_to<kE4M3>(x, Nearest{})          ties to even
//   round_to<kE4M3>(x, RandomBits{word})   away from zero with probability
//                                          (x - lower) / (upper - lower)
//   decode<kE4M3>(code)                    exact
//
// Everything is branch-free so that loops vectorise: eight elements at a time on AVX2.
#pragma once

#include <type_traits>

#include "core/scalar_math.h"
#include "core/tensor.h"  // first: otherwise its enumerators of the same names seem to hide these

namespace mpt {

// A code is sign, exponent and mantissa from the highest bit down, as in IEEE-754, so codes of the
// same sign sort like their values. Codes above max_code are infinities and NaNs, if the format has
// any.
struct FloatFormat {
  int mantissa_bits;
  int exponent_bias;
  uint32_t sign_code;      // the sign bit
  uint32_t max_code;       // code of the largest finite value
  float max_value;         // that value
  uint32_t overflow_code;  // result on overflow: max_code (saturation) or infinity
  uint32_t nan_code;       // result for any NaN; the sign is dropped

  [[nodiscard]] constexpr int min_exponent() const {
    return 1 - exponent_bias;
  }  // for normal values
};

// OCP's E4M3 ("fn": no infinities), E5M2 and E2M1. E2M1 has no NaN; a NaN becomes its largest
// value.
inline constexpr FloatFormat kE4M3{3, 7, 0x80, 0x7E, 448.0f, 0x7E, 0x7F};
inline constexpr FloatFormat kE5M2{2, 15, 0x80, 0x7B, 57344.0f, 0x7B, 0x7F};
inline constexpr FloatFormat kE2M1{1, 1, 0x8, 0x7, 6.0f, 0x7, 0x7};
// IEEE binary16, the only format here that overflows to infinity, as IEEE-754 specifies.
inline constexpr FloatFormat kBinary16{10, 15, 0x8000, 0x7BFF, 65504.0f, 0x7C00, 0x7FFF};

template <FloatFormat kFormat>
using CodeOf = std::conditional_t<(kFormat.sign_code > 0x80), uint16_t, uint8_t>;

// How to choose between a value's two neighbours: by the value itself, or by random bits.
struct Nearest {};
struct RandomBits {
  uint32_t word;  // its upper bits are used, one per dropped mantissa bit
};

// 2^exponent, which must be a normal FP32 value.
constexpr MPT_HD float power_of_two(int exponent) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(exponent + 127) << 23);
}

// Rounds a magnitude below the format's normal range to a multiple of its smallest subnormal. For
// round to nearest, adding 2^23 of these units makes FP32 itself round to a whole number of them.
template <FloatFormat kFormat>
MPT_HD uint32_t round_subnormal(float magnitude, Nearest) {
  constexpr float kShift = power_of_two(kFormat.min_exponent() - kFormat.mantissa_bits + 23);
  return bits_of(magnitude + kShift) - bits_of(kShift);
}
template <FloatFormat kFormat>
MPT_HD uint32_t round_subnormal(float magnitude, RandomBits random) {
  constexpr int kDropped = 23 - kFormat.mantissa_bits;
  constexpr float kToFixedPoint =
      power_of_two(kDropped + kFormat.mantissa_bits - kFormat.min_exponent());
  constexpr float kMinNormal = power_of_two(kFormat.min_exponent());
  const auto fixed = static_cast<int32_t>(min_of(magnitude, kMinNormal) * kToFixedPoint);
  return (static_cast<uint32_t>(fixed) + (random.word >> (32 - kDropped))) >> kDropped;
}

// Added to the bits of a normal value before the excess mantissa bits are dropped.
template <FloatFormat kFormat>
MPT_HD uint32_t increment(uint32_t magnitude, Nearest) {
  constexpr int kDropped = 23 - kFormat.mantissa_bits;
  return (1u << (kDropped - 1)) - 1u + ((magnitude >> kDropped) & 1u);
}
template <FloatFormat kFormat>
MPT_HD uint32_t increment(uint32_t, RandomBits random) {
  constexpr int kDropped = 23 - kFormat.mantissa_bits;
  return random.word >> (32 - kDropped);
}

// Returns the code of x. Values beyond the largest, and infinities, become overflow_code with their
// sign. Underflow and -0 keep their sign. A carry moves away from zero.
template <FloatFormat kFormat, class D>
MPT_HD CodeOf<kFormat> round_to(float x, D dither) {
  constexpr int kDropped = 23 - kFormat.mantissa_bits;
  constexpr uint32_t kMinNormal = static_cast<uint32_t>(kFormat.min_exponent() + 127) << 23;
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kFormat.exponent_bias)
                               << kFormat.mantissa_bits;
  constexpr uint32_t kSign = kFormat.sign_code, kOverflow = kFormat.overflow_code,
                     kNaN = kFormat.nan_code;
  const uint32_t u = bits_of(x), magnitude = u & 0x7FFFFFFFu;
  const uint32_t subnormal = round_subnormal<kFormat>(float_of(magnitude), dither);
  const uint32_t normal =
      ((magnitude + increment<kFormat>(magnitude, dither)) >> kDropped) - kRebias;
  // Signed comparisons: every SIMD instruction set has them.
  const auto code = static_cast<int32_t>(magnitude < kMinNormal ? subnormal : normal);
  const auto finite = static_cast<uint32_t>(min_of<int32_t>(code, kOverflow));
  const uint32_t signed_code = finite | ((u >> 31) * kSign);
  return static_cast<CodeOf<kFormat>>(magnitude > 0x7F800000u ? kNaN : signed_code);
}

// Returns the value of a code, whose unused upper bits must be zero.
template <FloatFormat kFormat>
MPT_HD float decode(uint32_t code) {
  constexpr int kDropped = 23 - kFormat.mantissa_bits;
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kFormat.exponent_bias) << 23;
  constexpr uint32_t kSign = kFormat.sign_code, kMaxCode = kFormat.max_code;
  constexpr uint32_t kMinNormalCode = 1u << kFormat.mantissa_bits;
  constexpr float kMinNormal = power_of_two(kFormat.min_exponent());
  const uint32_t magnitude = code & (kSign - 1u);
  const bool subnormal = magnitude < kMinNormalCode;
  // Reads a subnormal's mantissa with the smallest normal exponent, then subtracts its implicit
  // leading one: exact, and avoids FP32 subnormals, which cost a hundred cycles each.
  const uint32_t shifted = (magnitude << kDropped) + (subnormal ? kRebias + (1u << 23) : kRebias);
  const uint32_t special = magnitude > kMaxCode ? 0x7F800000u : 0u;
  const float value = float_of(shifted | special) - (subnormal ? kMinNormal : 0.0f);
  return float_of(bits_of(value) | ((code & kSign) != 0 ? 0x80000000u : 0u));
}

// Rounds x >= 0 up to the smallest finite value >= x, or to the largest finite value if there is
// none. Never zero for x > 0.
template <FloatFormat kFormat>
MPT_HD CodeOf<kFormat> round_up_to(float x) {
  constexpr uint32_t kMaxCode = kFormat.max_code;
  const uint32_t nearest = round_to<kFormat>(x, Nearest{});
  const uint32_t up = nearest + (decode<kFormat>(nearest) < x ? 1u : 0u);
  return static_cast<CodeOf<kFormat>>(min_of(up, kMaxCode));
}

// FP16, the storage format of FP8 block scales.
MPT_HD uint16_t fp16_nearest(float x) { return round_to<kBinary16>(x, Nearest{}); }
MPT_HD uint16_t fp16_up(float x) { return round_up_to<kBinary16>(x); }
MPT_HD float fp16_decode(uint16_t code) { return decode<kBinary16>(code); }

// OCP's E8M0, the scale format of microscaling: a bare exponent, 2^(code - 127); 255 is NaN. Clamps
// exponents out of range.
MPT_HD uint8_t e8m0_code(int exponent) {
  return static_cast<uint8_t>(clamp_to(exponent, -127, 127) + 127);
}
MPT_HD float e8m0_decode(uint8_t code) {
  const uint32_t bits =
      code == 0 ? 0x00400000u : static_cast<uint32_t>(code) << 23;  // 2^-127 is subnormal
  return float_of(code == 255 ? 0x7FC00000u : bits);
}

}  // namespace mpt
