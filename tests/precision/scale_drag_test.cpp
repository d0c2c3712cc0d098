// Scale drag: movement of weights that are never updated because a neighbor under the same scale
// moves (docs/numerics.md "Scale drag"). The published bounds of the default modes, and that the
// literal modes exceed them.
#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "precision/reference_block.h"
#include "support/draws.h"

namespace mpt {
namespace {

constexpr int64_t kDragRows = 256, kCols = 256;

struct Experiment {
  WeightEncoding encoding;
  Rounding rounding = Rounding::kNearest;
  bool walk = false;  // else growth
};

// Movement of the largest element of every block: 0.1 % per step for 100 steps, or 1 % up or down
// for 400.
struct Schedule {
  int steps;
  double step;
};

// Gaussian weights; in every step all blocks are decoded, the largest element of each is set to its
// own course in FP64, and all are encoded. Returns the factor by which all other elements have
// grown: their projection on their values after the first encoding.
double gain(const Experiment& experiment) {
  const Schedule schedule = experiment.walk ? Schedule{400, 0.01} : Schedule{100, 0.001};
  const WeightEncoding& encoding = experiment.encoding;
  const int64_t block = layout_of(encoding).block_scales->block;
  static const test::HostMatrix source = test::gaussian(kDragRows, kCols);
  test::HostEncoded weights(encoding, {kDragRows, kCols});
  test::HostMatrix x(DType::kF32, {kDragRows, kCols});
  const test::Ops ops(kDragRows);
  ops->encode(source, weights.view());
  ops->decode(weights.view(), x);
  float* const values = x.view().as<float>();
  const test::HostMatrix first = x;
  std::vector<int64_t> largest;
  std::vector<double> course;
  for (int64_t start = 0; start < kDragRows * kCols; start += block) {
    const auto* most =
        std::max_element(values + start, values + start + block,
                         [](float a, float b) { return std::fabs(a) < std::fabs(b); });
    largest.push_back(most - values);
    course.push_back(*most);
  }
  test::Draws draws(21);
  const BlockGrid grid{kDragRows, kCols};
  for (int step = 1; step <= schedule.steps; ++step) {
    if (step > 1) ops->decode(weights.view(), x);
    for (size_t b = 0; b < course.size(); ++b) {
      const bool up = !experiment.walk || draws.coin();
      course[b] *= up ? 1 + schedule.step : 1 / (1 + schedule.step);
      values[largest[b]] = float(course[b]);
    }
    const DitherSource source_of_bits{
        .rounding = experiment.rounding, .seed = 1, .step = uint32_t(step)};
    float amax = 0;
    for (int64_t i = 0; i < kDragRows * kCols; ++i) amax = std::max(amax, std::fabs(values[i]));
    with_codec(weights.view(), [&]<class Codec>(Codec codec) {
      if constexpr (Codec::kNeedsMaximum)
        if (needs_maximum(encoding)) codec = codec.storing_with(&amax);
      for (int64_t u = 0; u < grid.blocks(); ++u) {
        const BlockSpan span = grid.span(u);
        float lane[kUpdateBlock] = {};
        std::copy_n(values + span.row * kCols + span.col, span.count, lane);
        codec.store(SerialGroup{}, span, lane, source_of_bits.draw(SerialGroup{}, span));
      }
    });
    if (needs_maximum(encoding)) weights.tensor_scale.set(0, 0, amax);
    ops->rescale(weights.view());
  }
  ops->decode(weights.view(), x);
  // Excludes the moving elements.
  for (const int64_t i : largest) values[i] = first.view().as<float>()[i] = 0;
  double before = 0, after = 0;
  for (int64_t i = 0; i < kDragRows * kCols; ++i) {
    const double w = first.view().as<float>()[i];
    before += w * w;
    after += w * values[i];
  }
  return after / before;
}

WeightEncoding fp8(Fp8ScaleMode mode) {
  return {.format = WeightFormat::kBlockFp8, .fp8_block_size = 128, .fp8_scale_mode = mode};
}
WeightEncoding nvfp4(Nvfp4ScaleMode mode) {
  return {.format = WeightFormat::kNvfp4, .nvfp4_scale_mode = mode};
}

TEST(ScaleDrag, PowersOfTwoKeepFp8Weights) {
  for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic})
    for (const bool walk : {false, true})
      EXPECT_NEAR(gain({fp8(Fp8ScaleMode::kPow2), rounding, walk}), 1.0, 1e-6) << walk;
}
TEST(ScaleDrag, PowersOfTwoKeepMxfp8Weights) {
  for (const bool walk : {false, true})
    EXPECT_NEAR(gain({.encoding = {.format = WeightFormat::kMxfp8}, .walk = walk}), 1.0, 1e-6)
        << walk;
}

TEST(ScaleDrag, OctavesKeepNvfp4Weights) {
  for (const bool walk : {false, true}) {
    const double of_others = gain({.encoding = nvfp4(Nvfp4ScaleMode::kSticky), .walk = walk});
    EXPECT_LE(of_others, 1.02) << walk;
    EXPECT_GE(of_others, 1.0 - 0.02) << walk;
  }
}

// Scales with a new mantissa each step carry the weights along: 100 steps of 0.1 % are 10.5 %,
// which the others follow almost fully.
TEST(ScaleDrag, LiteralScalesDrag) {
  EXPECT_GT(gain({.encoding = fp8(Fp8ScaleMode::kFp16)}), 1.09);
  EXPECT_GT(gain({.encoding = nvfp4(Nvfp4ScaleMode::kLive)}), 1.09);
  EXPECT_GT(gain({.encoding = fp8(Fp8ScaleMode::kFp16), .walk = true}), 1.02);
}

}  // namespace
}  // namespace mpt
