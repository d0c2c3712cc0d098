// block_fp8 weights: published bytes and values, scales that never clip, and re-encoding of decoded
// values.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "precision/codecs/block_fp8.h"
#include "precision/reference_block.h"
#include "support/draws.h"
#include "support/host_encoded.h"

namespace mpt {
namespace {

using test::HostEncoded;

WeightEncoding encoding_of(int64_t block, Fp8ScaleMode mode) {
  return {.format = WeightFormat::kBlockFp8, .fp8_block_size = block, .fp8_scale_mode = mode};
}

struct Golden {
  Fp8ScaleMode mode;
  std::vector<uint32_t> scales, codes;
  float last_of_block[2];
};
const Golden kGoldens[] = {{Fp8ScaleMode::kPow2,
                            {0x2000, 0x0400},
                            {0xF8, 0xF6, 0xF4, 0xF2, 0xF0, 0xEC, 0xE8, 0xE0, 0x00, 0x60, 0x68,
                             0x6C, 0x70, 0x72, 0x74, 0x76, 0x00, 0xD8, 0x60, 0xE4, 0x68, 0xEA,
                             0x6C, 0xEE, 0x70, 0xF1, 0x72, 0xF3, 0x74, 0xF5, 0x76, 0xF7},
                            {1.75f, -0.0146484375f}},
                           {Fp8ScaleMode::kFp16,
                            {0x1C93, 0x0232},
                            {0xFE, 0xFC, 0xFA, 0xF9, 0xF6, 0xF2, 0xEE, 0xE6, 0x00, 0x66, 0x6E,
                             0x72, 0x76, 0x79, 0x7A, 0x7C, 0x00, 0xDF, 0x67, 0xEB, 0x6F, 0xF1,
                             0x73, 0xF5, 0x77, 0xF8, 0x79, 0xFA, 0x7B, 0xFC, 0x7D, 0xFE},
                            {1.71533203f, -0.015007019f}}};

TEST(BlockFp8Codec, PublishedBytesAndValues) {
  for (const Golden& golden : kGoldens) {
    HostEncoded weights(encoding_of(16, golden.mode), {1, 32});
    const BlockFp8Codec codec(weights.view());
    test::store_row(codec, test::two_blocks());
    for (int64_t i = 0; i < 32; ++i)
      EXPECT_EQ(weights.codes.bits(0, i), golden.codes[size_t(i)]) << i;
    for (int64_t b = 0; b < 2; ++b)
      EXPECT_EQ(weights.block_scales.bits(0, b), golden.scales[size_t(b)]);
    const std::vector<float> decoded = test::load_row(codec, 32);
    for (size_t b = 0; b < 2; ++b) EXPECT_FLOAT_EQ(decoded[16 * b + 15], golden.last_of_block[b]);
  }
}

// The mantissas at which the power of two changes, exactly and times 1 +- 2^-23, in every binade.
TEST(BlockFp8Codec, SmallestPowerOfTwoThatDoesNotClip) {
  for (int exponent = -126; exponent <= 127; ++exponent)
    for (const uint32_t mantissa : {0u, 1u, 0x5FFFFFu, 0x600000u, 0x600001u, 0x7FFFFFu}) {
      const float amax = float_of(uint32_t(exponent + 127) << 23 | mantissa);
      const float scale = fp16_decode(fp8_block_scale(amax, Fp8ScaleMode::kPow2));
      ASSERT_TRUE(scale >= 0x1p-24f && scale <= 0x1p15f) << amax;
      ASSERT_TRUE(scale == 0x1p15f || double(amax) <= 448.0 * double(scale)) << amax;
      ASSERT_TRUE(scale == 0x1p-24f || double(amax) > 224.0 * double(scale)) << amax;
    }
  EXPECT_EQ(fp8_block_scale(0.0f, Fp8ScaleMode::kPow2), 0);
  EXPECT_EQ(fp8_block_scale(0.0f, Fp8ScaleMode::kFp16), 0);
}

TEST(BlockFp8Codec, QuotientNeverClips) {
  test::Draws draws(5);
  for (int i = 0; i < 100000; ++i) {
    const float amax = std::fabs(draws.signed_binades(-40, 24));
    const float scale = fp16_decode(fp8_block_scale(amax, Fp8ScaleMode::kFp16));
    ASSERT_GE(scale, amax / 448.0f);
    ASSERT_GT(scale, 0.0f);
  }
}

// If pow2 scales are neither the smallest nor the largest, decoded values are encoded unchanged,
// and decode exactly in BF16.
TEST(BlockFp8Codec, EncodingAgainChangesNothing) {
  test::Draws draws(6);
  for (const int64_t block : {16, 32, 64, 128, 256}) {
    HostEncoded weights(encoding_of(block, Fp8ScaleMode::kPow2), {1, 256});
    const BlockFp8Codec codec(weights.view());
    for (int round = 0; round < 200; ++round) {
      std::vector<float> x(256);
      const double binade = draws.uniform(-13, 18);
      for (float& value : x) value = draws.signed_binades(binade - 24, binade);
      test::store_row(codec, x);
      const std::vector<float> once = test::load_row(codec, 256);
      test::store_row(codec, once);
      EXPECT_EQ(test::load_row(codec, 256), once) << block;
      for (const float value : once) ASSERT_EQ(rounded_to<bf16>(value), value);
    }
  }
}

// A maximum that rounds down to 224 s halves s and doubles every code, once.
TEST(BlockFp8Codec, HalvesTheScaleOnceExactly) {
  HostEncoded weights(encoding_of(16, Fp8ScaleMode::kPow2), {1, 16});
  const BlockFp8Codec codec(weights.view());
  test::store_row(codec, std::vector<float>{224.5f, 100.0f, -1.0f});
  EXPECT_EQ(weights.block_scales.bits(0, 0), fp16_nearest(1.0f));
  test::store_row(codec, test::load_row(codec, 16));
  EXPECT_EQ(weights.block_scales.bits(0, 0), fp16_nearest(0.5f));
  EXPECT_EQ(test::load_row(codec, 3), (std::vector<float>{224, 96, -1}));
  const HostEncoded rescaled = weights;
  test::store_row(codec, test::load_row(codec, 16));
  EXPECT_TRUE(weights == rescaled);
}

TEST(BlockFp8Codec, ZerosHaveNoSign) {
  HostEncoded weights(encoding_of(16, Fp8ScaleMode::kPow2), {1, 16});
  const BlockFp8Codec codec(weights.view());
  test::store_row(codec, std::vector<float>(16, 1.0f));
  test::store_row(codec, std::vector<float>(16, -0.0f));
  for (int64_t i = 0; i < 16; ++i) EXPECT_EQ(weights.codes.bits(0, i), 0u);
  EXPECT_EQ(weights.block_scales.bits(0, 0), 0u);
}

// Published: 2.65 % (pow2) and 2.57 % (fp16) at blocks of 128, 2.23 % (fp16) at 16, to their last
// digit.
TEST(BlockFp8Codec, ErrorOfGaussianWeights) {
  EXPECT_NEAR(test::gaussian_error(encoding_of(128, Fp8ScaleMode::kPow2)), 0.0265, 0.0001);
  EXPECT_NEAR(test::gaussian_error(encoding_of(128, Fp8ScaleMode::kFp16)), 0.0257, 0.0001);
  EXPECT_NEAR(test::gaussian_error(encoding_of(16, Fp8ScaleMode::kFp16)), 0.0223, 0.0001);
}

TEST(BlockFp8Codec, RefusesWhatItIsNotFor) {
  EXPECT_THROW(BlockFp8Codec(HostEncoded({.format = WeightFormat::kNvfp4}, {1, 16}).view()),
               LogicError);
  for (const int64_t block : {8, 48, 512}) {
    EXPECT_THROW(
        BlockFp8Codec(HostEncoded(encoding_of(block, Fp8ScaleMode::kPow2), {1, 16}).view()),
        LogicError);
  }
}

}  // namespace
}  // namespace mpt
