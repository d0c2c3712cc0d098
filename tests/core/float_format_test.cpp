// Small formats: every code's value, published casts, neighbors and ties, and stochastic rounding
// over all of its random bits.
#include "core/float_format.h"

#include <cmath>
#include <initializer_list>
#include <limits>

#include <gtest/gtest.h>

#include "core/bf16.h"

namespace mpt {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
float above(float x) { return std::nextafter(x, kInf); }
float below(float x) { return std::nextafter(x, -kInf); }

template <FloatFormat kFormat>
uint32_t nearest(float x) {
  return round_to<kFormat>(x, Nearest{});
}

// Returns a code's value by the definition of the format, in FP64.
template <FloatFormat kFormat>
double defined_value(uint32_t code) {
  const auto magnitude = code & (kFormat.sign_code - 1);
  const int exponent = int(magnitude >> kFormat.mantissa_bits);
  const double fraction =
      double(magnitude & ((1u << kFormat.mantissa_bits) - 1)) / (1 << kFormat.mantissa_bits);
  const double value = exponent == 0 ? std::ldexp(fraction, kFormat.min_exponent())
                                     : std::ldexp(1 + fraction, exponent - kFormat.exponent_bias);
  return (code & kFormat.sign_code) != 0 ? -value : value;
}

template <FloatFormat kFormat>
void expect_codes() {
  EXPECT_EQ(decode<kFormat>(kFormat.max_code), kFormat.max_value);
  for (const uint32_t sign : {0u, kFormat.sign_code}) {
    for (uint32_t code = sign; code <= (sign | kFormat.max_code); ++code) {
      const auto value = float(defined_value<kFormat>(code));
      ASSERT_EQ(bits_of(decode<kFormat>(code)), bits_of(value)) << code;
      ASSERT_EQ(nearest<kFormat>(value), code);
      ASSERT_EQ(round_to<kFormat>(value, RandomBits{0xFFFFFFFFu}), code) << "a grid point moves";
    }
  }
}
TEST(FloatFormat, EveryFiniteCode) {
  expect_codes<kE4M3>();
  expect_codes<kE5M2>();
  expect_codes<kE2M1>();
  expect_codes<kBinary16>();
}

TEST(FloatFormat, CodesBeyondTheLargest) {
  EXPECT_TRUE(std::isnan(decode<kE4M3>(0x7F)) && std::isnan(decode<kE4M3>(0xFF)));
  EXPECT_EQ(decode<kE5M2>(0x7C), kInf);
  EXPECT_EQ(decode<kE5M2>(0xFC), -kInf);
  for (const uint32_t code : {0x7Du, 0x7Eu, 0x7Fu, 0xFDu, 0xFFu})
    EXPECT_TRUE(std::isnan(decode<kE5M2>(code)));
  EXPECT_EQ(fp16_decode(0x7C00), kInf);
  EXPECT_TRUE(std::isnan(fp16_decode(0x7C01)));
}

// Tests between two adjacent codes: just above the lower, around the middle, just below the upper.
template <FloatFormat kFormat>
void expect_neighbours() {
  for (uint32_t code = 0; code < kFormat.max_code; ++code) {
    const float low = decode<kFormat>(code), high = decode<kFormat>(code + 1),
                middle = (low + high) / 2;
    const uint32_t even = code + (code & 1);
    const struct {
      float x;
      uint32_t code;
    } cases[] = {{above(low), code},
                 {below(middle), code},
                 {middle, even},
                 {above(middle), code + 1},
                 {below(high), code + 1}};
    for (const auto& known : cases) {
      ASSERT_EQ(nearest<kFormat>(known.x), known.code) << code << " " << known.x;
      ASSERT_EQ(nearest<kFormat>(-known.x), known.code | kFormat.sign_code)
          << code << " " << known.x;
    }
  }
}
TEST(FloatFormat, NearestOfTheNeighbours) {
  expect_neighbours<kE4M3>();
  expect_neighbours<kE5M2>();
  expect_neighbours<kE2M1>();
  expect_neighbours<kBinary16>();
}

struct Cast {
  float x;
  uint32_t code;
};
template <FloatFormat kFormat>
void expect_casts(std::initializer_list<Cast> casts) {
  for (const Cast& known : casts) EXPECT_EQ(nearest<kFormat>(known.x), known.code) << known.x;
}
TEST(FloatFormat, PublishedCasts) {
  expect_casts<kE4M3>({{464, 0x7E},
                       {464.00003f, 0x7E},
                       {480, 0x7E},
                       {kInf, 0x7E},
                       {0x1p-10f, 0x00},
                       {above(0x1p-10f), 1},
                       {0x3p-10f, 2},
                       {1.0625f, 0x38},
                       {1.1875f, 0x3A},
                       {17, 0x58},
                       {19, 0x5A},
                       {21, 0x5A},
                       {-1e-30f, 0x80},
                       {-0.0f, 0x80},
                       {-kInf, 0xFE},
                       {NAN, 0x7F},
                       {-NAN, 0x7F}});
  expect_casts<kE5M2>({{61439.99f, 0x7B},
                       {61440, 0x7B},
                       {65536, 0x7B},
                       {kInf, 0x7B},
                       {0x1p-17f, 0x00},
                       {above(0x1p-17f), 1},
                       {1.125f, 0x3C},
                       {18, 0x4C},
                       {19, 0x4D},
                       {1.1875f, 0x3D},
                       {-kInf, 0xFB},
                       {-NAN, 0x7F}});
  expect_casts<kE2M1>({{0.25f, 0},
                       {above(0.25f), 1},
                       {0.75f, 2},
                       {below(0.75f), 1},
                       {1.25f, 2},
                       {1.75f, 4},
                       {2.5f, 4},
                       {3.5f, 6},
                       {5.0f, 6},
                       {above(5.0f), 7},
                       {7, 7},
                       {kInf, 7},
                       {-kInf, 15},
                       {-0.1f, 8},
                       {-0.0f, 8},
                       {NAN, 7},
                       {-NAN, 7}});
  expect_casts<kBinary16>({{65519.99f, 0x7BFF},
                           {65520, 0x7C00},
                           {0x1p-25f, 0},
                           {above(0x1p-25f), 1},
                           {0x1p-14f, 0x0400},
                           {-kInf, 0xFC00}});
}

// Returns the smallest finite FP16 value not below x, for all values around every code.
TEST(Fp16, RoundsUp) {
  EXPECT_EQ(fp16_up(0.0f), 0);
  for (uint32_t code = 0; code < 0x7BFF; ++code) {
    const float low = decode<kBinary16>(code), high = decode<kBinary16>(code + 1);
    ASSERT_EQ(fp16_up(low), code);
    for (const float x : {above(low), (low + high) / 2, below(high)})
      ASSERT_EQ(fp16_up(x), code + 1) << x;
  }
  for (const float x : {65504.0f, 65505.0f, 1e9f, kInf}) EXPECT_EQ(fp16_up(x), 0x7BFF) << x;
  EXPECT_EQ(fp16_up(float_of(1)), 1) << "never zero for what is not";
}

TEST(E8M0, PowersOfTwo) {
  for (int code = 0; code < 255; ++code) {
    const auto scale = uint8_t(code);
    EXPECT_EQ(double(e8m0_decode(scale)), std::ldexp(1.0, code - 127)) << code;
    EXPECT_EQ(e8m0_code(code - 127), scale);
  }
  EXPECT_TRUE(std::isnan(e8m0_decode(255)));
  EXPECT_EQ(e8m0_code(-128), 0);
  EXPECT_EQ(e8m0_code(-1000), 0);
  EXPECT_EQ(e8m0_code(128), 254) << "never NaN";
}

// --- stochastic rounding -------------------------------------------------------------------------

// r of docs/numerics.md "Stochastic rounding", as the upper bits of a word; the lower bits must not
// matter.
template <FloatFormat kFormat>
uint32_t stochastic(float x, uint32_t r) {
  constexpr int kUnused = 9 + kFormat.mantissa_bits;
  return round_to<kFormat>(x, RandomBits{r << kUnused | ((1u << kUnused) - 1)});
}

TEST(StochasticRounding, PublishedE4M3) {
  constexpr uint32_t kR[] = {0, 0x40000, 0x80000, 0xC0000, 0xFFFFF};
  const struct {
    float x;
    uint32_t code[5];
  } cases[] = {{0.3f, {0x29, 0x29, 0x2A, 0x2A, 0x2A}},
               {0.0101f, {5, 5, 5, 5, 6}},
               {0.0011f, {0, 0, 1, 1, 1}},
               {-5.37f, {0xCA, 0xCA, 0xCB, 0xCB, 0xCB}},
               {447.9f, {0x7D, 0x7E, 0x7E, 0x7E, 0x7E}}};
  for (const auto& known : cases)
    for (int i = 0; i < 5; ++i)
      EXPECT_EQ(stochastic<kE4M3>(known.x, kR[i]), known.code[i]) << known.x;
}
TEST(StochasticRounding, PublishedE2M1) {
  constexpr uint32_t kR[] = {0, 0x100000, 0x200000, 0x300000, 0x3FFFFF};
  const struct {
    float x;
    uint32_t code[5];
  } cases[] = {{0.1f, {0, 0, 0, 0, 1}},
               {0.3f, {0, 0, 1, 1, 1}},
               {-1.2f, {0xA, 0xA, 0xA, 0xB, 0xB}},
               {2.6f, {4, 4, 5, 5, 5}},
               {5.9f, {6, 7, 7, 7, 7}}};
  for (const auto& known : cases)
    for (int i = 0; i < 5; ++i)
      EXPECT_EQ(stochastic<kE2M1>(known.x, kR[i]), known.code[i]) << known.x;
}

template <FloatFormat kFormat>
void expect_extremes() {
  constexpr uint32_t kSign = kFormat.sign_code;
  for (const uint32_t word : {0u, 0x80000000u, 0xFFFFFFFFu}) {
    const RandomBits random{word};
    EXPECT_EQ(round_to<kFormat>(NAN, random), kFormat.nan_code);
    EXPECT_EQ(round_to<kFormat>(float_of(0xFFFFFFFFu), random), kFormat.nan_code);
    EXPECT_EQ(round_to<kFormat>(float_of(0x7F800001u), random), kFormat.nan_code);
    for (const float x : {kFormat.max_value, kFormat.max_value * 1.01f, 3e38f, kInf}) {
      EXPECT_EQ(round_to<kFormat>(x, random), kFormat.max_code) << x;
      EXPECT_EQ(round_to<kFormat>(-x, random), kFormat.max_code | kSign) << x;
    }
    EXPECT_EQ(round_to<kFormat>(-0.0f, random), kSign);
    EXPECT_EQ(round_to<kFormat>(-float_of(1), random), kSign) << "below the resolution: never away";
  }
}
TEST(StochasticRounding, Extremes) {
  expect_extremes<kE4M3>();
  expect_extremes<kE5M2>();
  expect_extremes<kE2M1>();
}

// Over all r: only the two neighbors are drawn, and their mean is x, exactly if x is normal in the
// format; below that, x is first truncated to as many fixed-point bits as r has, an error of less
// than one unit of them toward zero.
template <FloatFormat kFormat>
void expect_unbiased(std::initializer_list<float> values) {
  constexpr int kBits = 23 - kFormat.mantissa_bits;
  const double unit = std::ldexp(1.0, kFormat.min_exponent() - kFormat.mantissa_bits - kBits);
  for (const float x : values) {
    const uint32_t low = round_to<kFormat>(x, RandomBits{0}) & (kFormat.sign_code - 1);
    const uint32_t sign = x < 0 ? kFormat.sign_code : 0;
    int64_t away = 0, stranger = 0;
#pragma omp simd reduction(+ : away, stranger)
    for (uint32_t r = 0; r < 1u << kBits; ++r) {
      const uint32_t code = round_to<kFormat>(x, RandomBits{r << (32 - kBits)});
      away += code == ((low + 1) | sign);
      stranger += code != (low | sign) && code != ((low + 1) | sign);
    }
    EXPECT_EQ(stranger, 0) << x;
    const double lower = defined_value<kFormat>(low), upper = defined_value<kFormat>(low + 1);
    const double mean = lower + (upper - lower) * std::ldexp(double(away), -kBits);
    EXPECT_LE(lower, std::fabs(x));
    EXPECT_LT(std::fabs(x), upper);
    if (std::fabs(x) >= std::ldexp(1.0, kFormat.min_exponent())) {
      EXPECT_EQ(mean, double(std::fabs(x))) << x;
    } else {
      EXPECT_LE(mean, double(std::fabs(x))) << x;
      EXPECT_LT(std::fabs(x) - mean, unit) << x;
    }
  }
}
TEST(StochasticRounding, UnbiasedOverAllRandomBits) {
  expect_unbiased<kE4M3>({0.3f, -5.37f, 447.9f, 1.0f, 17.0f, float_of(0x3F800001u), -0.015625f,
                          0.0156249f, 0.0101f, -0.0011f, 0.001953f, 1e-7f, 1e-30f});
  expect_unbiased<kE5M2>({0.3f, -5.37f, 57343.0f, 1.0f, 6.2e-5f, 6.0e-5f, -1.2e-5f, 1e-30f});
  expect_unbiased<kE2M1>(
      {-1.2f, 2.6f, 5.9f, 1.0f, 3.1415927f, 0.99999994f, 0.1f, -0.3f, 0.5f, 1e-30f});
}

}  // namespace
}  // namespace mpt
