// mxfp8 weights: known bytes, the value of every code under every scale, scales that never clip,
// and the bits of block_fp8 wherever both have the scale.
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "precision/codecs/block_fp8.h"
#include "precision/codecs/mxfp8.h"
#include "precision/reference_block.h"
#include "support/draws.h"
#include "support/host_encoded.h"

namespace mpt {
namespace {

using test::HostEncoded;

constexpr WeightEncoding kMx{.format = WeightFormat::kMxfp8};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

// Computed in exact fractions: the smallest power of two under which 2 does not clip is 2^-7.
TEST(Mxfp8Codec, KnownBytesAndValues) {
  HostEncoded weights(kMx, {1, 32});
  const Mxfp8Codec codec(weights.view());
  test::store_row(codec, test::two_blocks());
  const std::vector<uint32_t> codes{0xF8, 0xF6, 0xF4, 0xF2, 0xF0, 0xEC, 0xE8, 0xE0,
                                    0x00, 0x60, 0x68, 0x6C, 0x70, 0x72, 0x74, 0x76,
                                    0x00, 0xA0, 0x28, 0xAC, 0x30, 0xB2, 0x34, 0xB6,
                                    0x38, 0xB9, 0x3A, 0xBB, 0x3C, 0xBD, 0x3E, 0xBF};
  EXPECT_EQ(weights.block_scales.bits(0, 0), 0x78u);
  for (int64_t i = 0; i < 32; ++i) EXPECT_EQ(weights.codes.bits(0, i), codes[size_t(i)]) << i;
  const std::vector<float> decoded = test::load_row(codec, 32);
  EXPECT_EQ(decoded[0], -2.0f);
  EXPECT_EQ(decoded[15], 1.75f);
  EXPECT_EQ(decoded[31], -0.0146484375f);
}

// Returns the value by the definition of the formats, in FP64.
double value_of(uint32_t code, uint32_t scale) {
  const uint32_t exponent = code >> 3 & 0xF, mantissa = code & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, int(exponent) - 10);
  const bool nan = (code & 0x7F) == 0x7F || scale == 0xFF;
  const double value = nan ? NAN : std::ldexp(magnitude, int(scale) - 127);
  return (code & 0x80) != 0 ? -value : value;
}

TEST(Mxfp8Codec, EveryCodeUnderEveryScale) {
  HostEncoded weights(kMx, {1, 256});
  const EncodedTensor view = weights.view();
  const Mxfp8Codec codec(view);
  for (uint32_t i = 0; i < 256; ++i) view.codes.as<uint8_t>()[i] = uint8_t(i);
  for (uint32_t scale = 0; scale < 256; ++scale) {
    for (int64_t b = 0; b < 8; ++b) view.block_scales.as<uint8_t>()[b] = uint8_t(scale);
    const std::vector<float> x = test::load_row(codec, 256);
    for (uint32_t i = 0; i < 256; ++i) {
      const double expected = value_of(i, scale);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(x[i])) << scale << " " << i;
        continue;
      }
      ASSERT_EQ(bits_of(x[i]), bits_of(float(expected))) << scale << " " << i;
      ASSERT_TRUE(std::fabs(expected) > kLargest || double(x[i]) == expected) << "exact";
    }
  }
}

// Around the mantissa at which the power of two changes, in every binade.
TEST(Mxfp8Codec, SmallestPowerOfTwoThatDoesNotClip) {
  for (uint32_t exponent = 0; exponent <= 254; ++exponent)
    for (const uint32_t mantissa : {0u, 1u, 0x5FFFFFu, 0x600000u, 0x600001u, 0x7FFFFFu}) {
      const float amax = float_of(exponent << 23 | mantissa);
      const int code = Mxfp8Scales::of(amax);
      ASSERT_LE(code, 127 + 119) << amax;
      ASSERT_TRUE(code == 127 + 119 || double(amax) <= std::ldexp(448.0, code - 127)) << amax;
      ASSERT_TRUE(code == 0 || double(amax) > std::ldexp(224.0, code - 127)) << amax;
      ASSERT_EQ(
          double(Mxfp8Scales::factor(uint8_t(code))) * double(Mxfp8Scales::step(uint8_t(code))),
          1.0);
    }
}

// A block of zeros, one cut by the row's end, and numbers next to them.
TEST(Mxfp8Codec, Blocks) {
  HostEncoded weights(kMx, {1, 69});
  const Mxfp8Codec codec(weights.view());
  std::vector<float> x(69);
  for (size_t i = 0; i < 32; ++i) x[i] = float(i) / 32;
  for (size_t i = 64; i < 69; ++i) x[i] = -448.0f;
  test::store_row(codec, x);
  ASSERT_EQ(weights.block_scales.view().cols, 3);
  EXPECT_EQ(weights.block_scales.bits(0, 0), 127u - 8);
  EXPECT_EQ(weights.block_scales.bits(0, 1), 0u) << "the smallest scale";
  EXPECT_EQ(weights.block_scales.bits(0, 2), 127u);
  for (int64_t i = 32; i < 64; ++i) EXPECT_EQ(weights.codes.bits(0, i), 0u);
  for (int64_t i = 64; i < 69; ++i) EXPECT_EQ(weights.codes.bits(0, i), 0xFEu);
  EXPECT_EQ(test::load_row(codec, 69)[68], -448.0f);
  EXPECT_TRUE(weights.padding_untouched());
}

// A NaN is kept and does not affect the scale; an infinity becomes the largest number.
TEST(Mxfp8Codec, NotFinite) {
  HostEncoded weights(kMx, {1, 96});
  const Mxfp8Codec codec(weights.view());
  std::vector<float> x(96, 1.0f);
  x[3] = NAN;
  x[40] = -kInfinity;
  x[70] = kLargest;
  test::store_row(codec, x);
  const std::vector<float> stored = test::load_row(codec, 96);
  EXPECT_TRUE(std::isnan(stored[3]));
  EXPECT_EQ(weights.codes.bits(0, 3), 0x7Fu);
  for (size_t i : {0, 2, 4, 31}) EXPECT_EQ(stored[i], 1.0f) << i;
  EXPECT_EQ(stored[40], -448.0f * 0x1p119f);
  EXPECT_EQ(stored[41], 0.0f);
  EXPECT_EQ(stored[70], 448.0f * 0x1p119f);
  EXPECT_TRUE(std::isfinite(stored[70]));
}

TEST(Mxfp8Codec, TheSmallestNumbers) {
  HostEncoded weights(kMx, {1, 32});
  const Mxfp8Codec codec(weights.view());
  std::vector<float> x(32, 0x1p-136f);
  x[0] = -0x1p-126f;
  x[1] = 0x1p-138f;
  x[2] = -0.0f;
  test::store_row(codec, x);
  EXPECT_EQ(weights.block_scales.bits(0, 0), 0u);
  const std::vector<float> stored = test::load_row(codec, 32);
  EXPECT_EQ(stored[0], -0x1p-126f);
  EXPECT_EQ(stored[1], 0.0f);
  EXPECT_EQ(bits_of(stored[2]), 0x80000000u) << "keeps its sign";
  EXPECT_EQ(stored[3], 0x1p-136f);
}

std::vector<float> random_row(test::Draws& draws, double binade) {
  std::vector<float> x(256);
  for (float& value : x) value = draws.signed_binades(binade - 24, binade);
  return x;
}

TEST(Mxfp8Codec, EncodingAgainChangesNothing) {
  test::Draws draws(6);
  HostEncoded weights(kMx, {1, 256});
  const Mxfp8Codec codec(weights.view());
  for (int round = 0; round < 500; ++round) {
    test::store_row(codec, random_row(draws, draws.uniform(-100, 120)));
    const std::vector<float> once = test::load_row(codec, 256);
    test::store_row(codec, once);
    ASSERT_EQ(test::load_row(codec, 256), once);
  }
}

// If FP16 can represent the scale, too, block_fp8 with blocks of 32 and pow2 scales has the same
// codes and values.
TEST(Mxfp8Codec, AgreesWithBlockFp8) {
  test::Draws draws(7);
  const WeightEncoding fp8{.format = WeightFormat::kBlockFp8, .fp8_block_size = 32};
  HostEncoded mx(kMx, {1, 256}), blocks(fp8, {1, 256});
  const Mxfp8Codec mx_codec(mx.view());
  const BlockFp8Codec block_codec(blocks.view());
  for (int round = 0; round < 500; ++round) {
    const std::vector<float> x = random_row(draws, draws.uniform(-13, 22));
    const DitherSource source{
        .rounding = round % 2 == 0 ? Rounding::kNearest : Rounding::kStochastic,
        .seed = 3,
        .step = uint32_t(round)};
    test::store_row(mx_codec, x, source);
    test::store_row(block_codec, x, source);
    for (int64_t i = 0; i < 256; ++i) ASSERT_EQ(mx.codes.bits(0, i), blocks.codes.bits(0, i));
    ASSERT_EQ(test::load_row(mx_codec, 256), test::load_row(block_codec, 256));
  }
  EXPECT_EQ(test::gaussian_error(kMx), test::gaussian_error(fp8));
}

TEST(Mxfp8Codec, ErrorOfGaussianWeights) { EXPECT_NEAR(test::gaussian_error(kMx), 0.0266, 0.0001); }

TEST(Mxfp8Codec, RefusesWhatItIsNotFor) {
  EXPECT_THROW(Mxfp8Codec(HostEncoded({.format = WeightFormat::kBlockFp8}, {1, 32}).view()),
               LogicError);
  EXPECT_THROW(BlockFp8Codec(HostEncoded(kMx, {1, 32}).view()), LogicError);
}

}  // namespace
}  // namespace mpt
