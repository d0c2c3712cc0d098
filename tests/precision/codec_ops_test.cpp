// Encoding, decoding and rescaling whole tensors: every format against its codec update block by
// update block, any width, no byte beyond the logical elements.
#include "precision/codec_ops.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "precision/reference_block.h"
#include "support/draws.h"

namespace mpt {
namespace {

using test::HostEncoded;
using test::HostMatrix;

constexpr int64_t kOpsRows = 5;

std::vector<WeightEncoding> op_encodings() {
  return {{.format = WeightFormat::kF32},
          {.format = WeightFormat::kBF16},
          {.format = WeightFormat::kBlockFp8, .fp8_block_size = 32},
          {.format = WeightFormat::kBlockFp8,
           .fp8_block_size = 256,
           .fp8_scale_mode = Fp8ScaleMode::kFp16},
          {.format = WeightFormat::kNvfp4, .nvfp4_scale_mode = Nvfp4ScaleMode::kSticky},
          {.format = WeightFormat::kNvfp4, .nvfp4_scale_mode = Nvfp4ScaleMode::kLive},
          {.format = WeightFormat::kMxfp8}};
}

HostMatrix random_matrix(int64_t cols, uint64_t seed) {
  HostMatrix m(DType::kF32, {kOpsRows, cols, 3});
  test::Draws draws(seed);
  m.fill([&](int64_t, int64_t) { return draws.signed_binades(-10, 3); });
  return m;
}

// Returns the distance of neighbors, relative to the smallest value of a binade.
float relative_step(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return 0.0f;
    case WeightFormat::kBF16:
      return 0x1p-7f;
    case WeightFormat::kBlockFp8:
    case WeightFormat::kMxfp8:
      return 0x1p-3f;
    default:
      return 0x1p-1f;
  }
}

// The tensor's largest element survives to its format's accuracy, and an encoding does not depend
// on the previous contents of memory.
TEST(CodecOps, EncodesFromValuesAlone) {
  for (const int64_t cols : {1, 21, 300, 512})
    for (const WeightEncoding& encoding : op_encodings()) {
      SCOPED_TRACE(fmt::format("{}, {} columns", name_of(encoding.format), cols));
      const HostMatrix source = random_matrix(cols, 31);
      HostEncoded weights(encoding, {kOpsRows, cols, 4}), reused(encoding, {kOpsRows, cols, 4});
      HostMatrix decoded(DType::kF32, {kOpsRows, cols, 2});
      const test::Ops ops(kOpsRows);
      ops->encode(source, weights.view());
      ops->encode(random_matrix(cols, 32), reused.view());
      ops->encode(source, reused.view());
      EXPECT_TRUE(weights == reused);
      EXPECT_TRUE(weights.padding_untouched());
      ops->decode(weights.view(), decoded);
      EXPECT_TRUE(decoded.padding_untouched());
      float most = 0;
      for (int64_t r = 0; r < kOpsRows; ++r)
        for (int64_t c = 0; c < cols; ++c) most = std::max(most, std::fabs(source.at(r, c)));
      for (int64_t r = 0; r < kOpsRows; ++r)
        for (int64_t c = 0; c < cols; ++c)
          if (std::fabs(source.at(r, c)) == most) {
            EXPECT_NEAR(decoded.at(r, c) / source.at(r, c), 1, relative_step(encoding.format) / 2);
          }
    }
}

TEST(CodecOps, DecodesToBf16AsRoundedFp32) {
  for (const WeightEncoding& encoding : op_encodings()) {
    SCOPED_TRACE(name_of(encoding.format));
    HostEncoded weights(encoding, {kOpsRows, 300, 4});
    HostMatrix fp32(DType::kF32, {kOpsRows, 300}), halves(DType::kBF16, {kOpsRows, 300, 8});
    const test::Ops ops(kOpsRows);
    ops->encode(random_matrix(300, 33), weights.view());
    ops->decode(weights.view(), fp32);
    ops->decode(weights.view(), halves);
    EXPECT_TRUE(halves.padding_untouched());
    for (int64_t r = 0; r < kOpsRows; ++r)
      for (int64_t c = 0; c < 300; ++c)
        ASSERT_EQ(halves.bits(r, c), bf16_nearest(fp32.at(r, c)).bits) << r << " " << c;
  }
}

// Only sticky nvfp4 has anything to rescale.
TEST(CodecOps, RescalesNothingElse) {
  for (const WeightEncoding& encoding : op_encodings()) {
    SCOPED_TRACE(name_of(encoding.format));
    HostEncoded weights(encoding, {kOpsRows, 300, 4});
    const test::Ops ops(kOpsRows);
    ops->encode(random_matrix(300, 34), weights.view());
    if (encoding.format == WeightFormat::kNvfp4 &&
        encoding.nvfp4_scale_mode == Nvfp4ScaleMode::kSticky)
      continue;
    const HostEncoded before = weights;
    ops->rescale(weights.view());
    EXPECT_TRUE(weights == before);
  }
}

// The scale that overflows may be in any row: the last one here.
TEST(CodecOps, RescalesByTheLargestScaleOfAnyRow) {
  HostEncoded weights({.format = WeightFormat::kNvfp4}, {kOpsRows, 40, 4});
  const EncodedTensor view = weights.view();
  weights.tensor_scale.set(0, 0, 1.0f);
  const test::Ops ops(kOpsRows);
  for (int64_t r = 0; r < kOpsRows; ++r)
    for (int64_t b = 0; b < 3; ++b)
      view.block_scales.as<uint8_t>()[r * view.block_scales.stride + b] = 0x40;
  ops->rescale(view);
  EXPECT_EQ(weights.tensor_scale.at(0, 0), 1.0f);
  view.block_scales.as<uint8_t>()[(kOpsRows - 1) * view.block_scales.stride + 2] = 0x70;
  ops->rescale(view);
  EXPECT_EQ(weights.tensor_scale.at(0, 0), 4.0f);
  EXPECT_EQ(weights.block_scales.bits(0, 0), 0x30u);
  EXPECT_EQ(weights.block_scales.bits(kOpsRows - 1, 2), 0x60u);
  EXPECT_TRUE(weights.padding_untouched());
}

TEST(CodecOps, RefusesShapesThatDiffer) {
  HostEncoded weights({.format = WeightFormat::kNvfp4}, {kOpsRows, 40});
  HostMatrix wide(DType::kF32, {kOpsRows, 41}), halves(DType::kBF16, {kOpsRows, 40}),
      right(DType::kF32, {kOpsRows, 40});
  const test::Ops ops(kOpsRows), small(kOpsRows - 1);
  EXPECT_THROW(ops->encode(wide, weights.view()), LogicError);
  EXPECT_THROW(ops->decode(weights.view(), wide), LogicError);
  EXPECT_THROW(ops->encode(halves, weights.view()), LogicError);
  EXPECT_THROW(small->encode(right, weights.view()), LogicError) << "scratch for fewer rows";
}

}  // namespace
}  // namespace mpt
