// nvfp4 weights: every published byte of both scale modes, the moves of sticky scales, the end of a
// step.
#include <cmath>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "precision/codecs/nvfp4.h"
#include "precision/reference_block.h"
#include "support/draws.h"
#include "support/host_encoded.h"

namespace mpt {
namespace {

using test::HostEncoded;
using test::HostMatrix;

constexpr WeightEncoding kSticky{.format = WeightFormat::kNvfp4,
                                 .nvfp4_scale_mode = Nvfp4ScaleMode::kSticky};
constexpr WeightEncoding kLive{.format = WeightFormat::kNvfp4,
                               .nvfp4_scale_mode = Nvfp4ScaleMode::kLive};

HostMatrix matrix_of(const std::vector<float>& x) {
  HostMatrix m(DType::kF32, {1, int64_t(x.size())});
  m.fill([&](int64_t, int64_t c) { return x[size_t(c)]; });
  return m;
}

struct State {
  uint32_t tensor_scale;
  std::vector<uint32_t> scales, bytes;
};
void expect_state(const HostEncoded& weights, const State& state) {
  EXPECT_EQ(weights.tensor_scale.bits(0, 0), state.tensor_scale);
  for (size_t b = 0; b < state.scales.size(); ++b)
    EXPECT_EQ(weights.block_scales.bits(0, int64_t(b)), state.scales[b]) << "scale " << b;
  for (size_t i = 0; i < state.bytes.size(); ++i)
    EXPECT_EQ(weights.codes.bits(0, int64_t(i)), state.bytes[i]) << "byte " << i;
}

// --- live ----------------------------------------------------------------------------------------

TEST(Nvfp4Live, PublishedBytesAndValues) {
  HostEncoded weights(kLive, {1, 32});
  const test::Ops ops(1);
  ops->encode(matrix_of(test::two_blocks()), weights.view());
  EXPECT_EQ(bits_of(nvfp4_live::tensor_multiplier(2.0f)), 0x44A80000u);
  expect_state(weights, {0x40000000,
                         {0x7E, 0x45},
                         {0xFF, 0xEE, 0xCD, 0xAB, 0x20, 0x43, 0x65, 0x76, 0x90, 0xA2, 0xC3, 0xD4,
                          0xE5, 0xE6, 0xF6, 0xF7}});
  const std::vector<float> x = test::load_row(Nvfp4Codec(weights.view()), 32);
  const std::vector<float> first{
      -2, -2,          -1.33333337f, -1.33333337f, -1, -.666666687f, -.5f,        -.333333343f,
      0,  .333333343f, .5f,          .666666687f,  1,  1.33333337f,  1.33333337f, 2};
  EXPECT_EQ(std::vector<float>(x.begin(), x.begin() + 16), first);
  EXPECT_EQ(x[16], 0.0f);
  EXPECT_EQ(x[17], -0.00120907743f);
  EXPECT_EQ(x[18], 0.00241815485f);
  EXPECT_EQ(x[19], -0.00241815485f);
  EXPECT_EQ(x[31], -0.0145089291f);
}

TEST(Nvfp4Live, ZeroTensor) {
  HostEncoded weights(kLive, {1, 32});
  const test::Ops ops(1);
  ops->encode(matrix_of(test::two_blocks()), weights.view());
  ops->encode(matrix_of(std::vector<float>(32, -0.0f)), weights.view());
  EXPECT_EQ(nvfp4_live::tensor_multiplier(0.0f), 1.0f);
  expect_state(weights, {0, {0, 0}, std::vector<uint32_t>(16, 0)});
  EXPECT_EQ(test::load_row(Nvfp4Codec(weights.view()), 32), std::vector<float>(32, 0.0f));
}

// Blocks at most 2.18e-6 of the tensor's maximum lose their scale; their codes are then zero.
TEST(Nvfp4Live, FlushesTinyBlocks) {
  std::vector<float> x(48, 0.0f);
  x[0] = 1.0f;
  x[16] = -2.17e-6f;
  x[32] = 2.19e-6f;
  HostEncoded weights(kLive, {1, 48});
  const test::Ops ops(1);
  ops->encode(matrix_of(x), weights.view());
  expect_state(weights, {0x3F800000, {0x7E, 0x00, 0x01}, {0x07, 0, 0, 0, 0, 0, 0, 0, 0}});
  EXPECT_NE(weights.codes.bits(0, 16), 0u);
}

// Two passes: the codes in memory belong to the old amax until the new one is known.
TEST(Nvfp4Live, LoadsWithTheOldScaleAndStoresWithTheNew) {
  HostEncoded weights(kLive, {1, 32}), anew(kLive, {1, 32});
  const test::Ops ops(1);
  ops->encode(matrix_of(test::two_blocks()), weights.view());
  const float new_amax = 3.0f;
  const Nvfp4Codec codec = Nvfp4Codec(weights.view()).storing_with(&new_amax);
  std::vector<float> x = test::load_row(codec, 32);
  EXPECT_EQ(x[15], 2.0f);
  x[15] = new_amax;
  test::store_row(codec, x);
  weights.tensor_scale.set(0, 0, new_amax);
  ops->encode(matrix_of(x), anew.view());
  EXPECT_TRUE(weights == anew);
}

TEST(Nvfp4Live, ErrorOfGaussianWeights) { EXPECT_NEAR(test::gaussian_error(kLive), 0.095, 0.0005); }

// --- sticky --------------------------------------------------------------------------------------

const std::vector<uint32_t> kFirstBytes{0xFF, 0xEE, 0xCD, 0x9B, 0x10, 0x43, 0x65, 0x76,
                                        0x90, 0xA1, 0xC3, 0xD4, 0xD5, 0xE6, 0xE6, 0xF7};

// Each line is the next encoding of the decoded state with one change.
TEST(Nvfp4Sticky, PublishedSequence) {
  HostEncoded weights(kSticky, {1, 32});
  const test::Ops ops(1);
  const Nvfp4Codec codec(weights.view());
  const auto change = [&](const std::function<void(std::vector<float>&)>& edit) {
    std::vector<float> x = test::load_row(codec, 32);
    edit(x);
    test::store_row(codec, x);
  };
  ops->encode(matrix_of(test::two_blocks()), weights.view());
  expect_state(weights, {0x3B800000, {0x6B, 0x33}, kFirstBytes});
  const std::vector<float> decoded = test::load_row(codec, 32);
  const std::vector<float> first{-2.0625f,  -2.0625f,  -1.375f, -1.375f,  -1.03125f, -.6875f,
                                 -.515625f, -.171875f, 0,       .171875f, .515625f,  .6875f,
                                 1.03125f,  1.375f,    1.375f,  2.0625f};
  EXPECT_EQ(std::vector<float>(decoded.begin(), decoded.begin() + 16), first);
  EXPECT_EQ(decoded[30], 0.0161132812f);
  EXPECT_EQ(decoded[31], -0.0161132812f);

  change([](std::vector<float>&) {});
  expect_state(weights, {0x3B800000, {0x6B, 0x33}, kFirstBytes});
  EXPECT_EQ(test::load_row(codec, 32), decoded);

  change([](std::vector<float>& x) { x[0] = -2.5f; });
  expect_state(weights, {0x3B800000,
                         {0x73, 0x33},
                         {0xDE, 0xCC, 0xAB, 0x8A, 0x00, 0x22, 0x43, 0x54, 0x90, 0xA1, 0xC3, 0xD4,
                          0xD5, 0xE6, 0xE6, 0xF7}});
  change([](std::vector<float>& x) { std::fill(x.begin() + 20, x.end(), 0.0f); });
  const std::vector<uint32_t> second_half{0xC0, 0xE4, 0, 0, 0, 0, 0, 0};
  std::vector<uint32_t> bytes{0xDE, 0xCC, 0xAB, 0x8A, 0x00, 0x22, 0x43, 0x54};
  bytes.insert(bytes.end(), second_half.begin(), second_half.end());
  expect_state(weights, {0x3B800000, {0x73, 0x23}, bytes});

  change([](std::vector<float>& x) { x[0] = 8; });
  bytes = {0xB7, 0xAA, 0x9A, 0x89, 0x00, 0x11, 0x22, 0x32};
  bytes.insert(bytes.end(), second_half.begin(), second_half.end());
  expect_state(weights, {0x3B800000, {0x7B, 0x23}, bytes});

  const std::vector<float> before = test::load_row(codec, 32);
  ops->rescale(weights.view());
  expect_state(weights, {0x3C800000, {0x6B, 0x13}, bytes});
  EXPECT_EQ(test::load_row(codec, 32), before);
  const HostEncoded rescaled = weights;
  ops->rescale(weights.view());
  EXPECT_TRUE(weights == rescaled) << "nothing is left to rescale";
}

// The smallest power of two with which 112 steps of 6 reach the tensor's maximum, in every binade
// and around the mantissa at which it changes.
TEST(Nvfp4Sticky, FirstTensorScale) {
  EXPECT_EQ(nvfp4_sticky::first_tensor_scale(0.0f), 1.0f);
  for (int exponent = -108; exponent <= 127; ++exponent)
    for (const uint32_t mantissa : {0u, 0x27FFFFu, 0x280000u, 0x280001u, 0x7FFFFFu}) {
      const float amax = float_of(uint32_t(exponent + 127) << 23 | mantissa);
      const double scale = nvfp4_sticky::first_tensor_scale(amax);
      ASSERT_GE(672 * scale, amax);
      ASSERT_LT(336 * scale, amax);
      ASSERT_LE(nvfp4_sticky::next_scale(0, amax, float(scale)), 0x6E);
    }
}

// A block without a scale: the smallest that does not clip its maximum.
TEST(Nvfp4Sticky, FirstBlockScale) {
  for (uint32_t code = 1; code < kE4M3.max_code; ++code) {
    const float limit = 6 * decode<kE4M3>(code);
    EXPECT_EQ(nvfp4_sticky::next_scale(0, limit, 1.0f), code);
    EXPECT_EQ(nvfp4_sticky::next_scale(0, std::nextafter(limit, 1e9f), 1.0f), code + 1);
  }
  EXPECT_EQ(nvfp4_sticky::next_scale(0, 0.0f, 1.0f), 0);
  EXPECT_EQ(nvfp4_sticky::next_scale(0, 1e-20f, 1.0f), 1) << "never zero for what is not";
}

// The rule as stated, in FP64 and on values: only powers of two, up to 448 and down to 2^-6.
TEST(Nvfp4Sticky, ScalesMoveByOctaves) {
  test::Draws draws(8);
  for (int i = 0; i < 200000; ++i) {
    const auto code = uint8_t(1 + draws.index(0x7E));
    const float tensor = power_of_two(int(draws.index(20)) - 10);
    const float amax = std::fabs(draws.signed_binades(-24, 24));
    double scale = decode<kE4M3>(code);
    while (double(amax) > 6 * scale * tensor && scale <= 224) scale *= 2;
    while (double(amax) <= 3 * scale * tensor && scale >= 0x1p-5) scale /= 2;
    ASSERT_EQ(decode<kE4M3>(nvfp4_sticky::next_scale(code, amax, tensor)), float(scale)) << amax;
    ASSERT_EQ(nvfp4_sticky::next_scale(code, 0.0f, tensor), code);
  }
}

TEST(Nvfp4Sticky, EncodingAgainChangesNothing) {
  test::Draws draws(9);
  HostEncoded weights(kSticky, {1, 256});
  const test::Ops ops(1);
  const Nvfp4Codec codec(weights.view());
  for (int round = 0; round < 200; ++round) {
    std::vector<float> x(256);
    for (float& value : x) value = draws.signed_binades(-5, 3);  // scales stay normal
    ops->encode(matrix_of(x), weights.view());
    const std::vector<float> once = test::load_row(codec, 256);
    for (const float value : once) ASSERT_EQ(rounded_to<bf16>(value), value);
    test::store_row(codec, once);
    ASSERT_EQ(test::load_row(codec, 256), once);
  }
}

// Values beyond 6 steps of the largest scale that octaves reach are clipped, and counted.
TEST(Nvfp4Sticky, CountsSaturatedBlocks) {
  HostEncoded weights(kSticky, {1, 64});
  const test::Ops ops(1);
  ops->encode(matrix_of(std::vector<float>(64, 1.0f)), weights.view());
  const Nvfp4Codec codec(weights.view());
  const uint32_t mantissa = weights.block_scales.bits(0, 0) & 7;
  ASSERT_LT(mantissa, 7u);
  const float most = 6 * decode<kE4M3>(0x78 | mantissa) * weights.tensor_scale.at(0, 0);
  float x[kUpdateBlock] = {};
  x[3] = most;
  x[17] = std::nextafter(most, 1e9f);
  x[63] = -2 * most;
  const HostEncoded before = weights;
  EXPECT_EQ(codec.saturated_blocks(SerialGroup{}, {0, 0, 64}, x), 2);
  EXPECT_TRUE(weights == before) << "counting writes nothing";
  codec.store(SerialGroup{}, {0, 0, 64}, x, DitherSource{}.draw(SerialGroup{}, {0, 0, 64}));
  const std::vector<float> stored = test::load_row(codec, 64);
  for (const size_t i : {3u, 17u, 63u}) EXPECT_EQ(std::fabs(stored[i]), most);
}

// Blocks too small for a quarter of their scale are rounded again with the next scale up; the
// others keep their codes and values.
TEST(Nvfp4Sticky, RescalesSmallBlocks) {
  test::Draws draws(10);
  constexpr int64_t kBlocks = 0x7F;
  HostEncoded weights(kSticky, {2, kBlocks * 16, 3});
  weights.tensor_scale.set(0, 0, 0.5f);
  const EncodedTensor view = weights.view();
  for (int64_t b = 0; b < kBlocks; ++b) {
    view.block_scales.as<uint8_t>()[b] = uint8_t(b);  // 0: all codes are zero
    for (int64_t i = 0; b > 0 && i < 8; ++i)
      view.codes.as<uint8_t>()[8 * b + i] = uint8_t(draws.index(256));
  }
  HostMatrix before(DType::kF32, {2, kBlocks * 16}), after(DType::kF32, {2, kBlocks * 16});
  const HostEncoded original = weights;
  const test::Ops ops(2);
  ops->decode(view, before);
  ops->rescale(view);
  ops->decode(view, after);
  EXPECT_TRUE(weights.padding_untouched());
  EXPECT_EQ(weights.tensor_scale.at(0, 0), 2.0f);
  for (int64_t b = 0; b < kBlocks; ++b) {
    uint32_t expected = 0;
    while (decode<kE4M3>(expected) < decode<kE4M3>(uint32_t(b)) / 4) ++expected;
    ASSERT_EQ(weights.block_scales.bits(0, b), expected) << b;
    const float step = decode<kE4M3>(expected) * 2.0f;
    for (int64_t i = 16 * b; i < 16 * b + 16; ++i) {
      const float x = before.at(0, i);
      const float rounded =
          b == 0 ? 0.0f : decode<kE2M1>(round_to<kE2M1>(x / step, Nearest{})) * step;
      ASSERT_EQ(after.at(0, i), b < 0x18 ? rounded : x) << b;
    }
    if (b >= 0x18) {
      for (int64_t i = 8 * b; i < 8 * b + 8; ++i)
        ASSERT_EQ(weights.codes.bits(0, i), original.codes.bits(0, i));
    }
  }
}

TEST(Nvfp4Sticky, RescalesOnlyWhenScalesRunOut) {
  const test::Ops ops(1);
  for (const uint8_t largest : {0x6D, 0x6E, 0x6F, 0x7E}) {
    HostEncoded weights(kSticky, {1, 16});
    weights.tensor_scale.set(0, 0, 1.0f);
    weights.view().block_scales.as<uint8_t>()[0] = largest;
    ops->rescale(weights.view());
    EXPECT_EQ(weights.tensor_scale.at(0, 0), largest > 0x6E ? 4.0f : 1.0f) << int(largest);
    EXPECT_LE(weights.block_scales.bits(0, 0), 0x6Eu);
  }
}

// A step may double the weights twice: from every state after rescaling, nothing is clipped.
TEST(Nvfp4Sticky, FourfoldGrowthNeverClips) {
  for (uint32_t code = 1; code <= 0x6E; ++code) {
    const float amax = 4 * 6 * decode<kE4M3>(code);
    const uint8_t next = nvfp4_sticky::next_scale(uint8_t(code), amax, 1.0f);
    EXPECT_LE(amax, 6 * decode<kE4M3>(next)) << code;
  }
}

TEST(Nvfp4Codec, RefusesWhatItIsNotFor) {
  EXPECT_THROW(Nvfp4Codec(HostEncoded({.format = WeightFormat::kBlockFp8}, {1, 16}).view()),
               LogicError);
}

}  // namespace
}  // namespace mpt
