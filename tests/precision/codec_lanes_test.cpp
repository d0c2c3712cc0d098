// Scaled codecs give the same bits with 1, 4 and 32 lanes, for any rounding, and modify only the
// logical elements: this replaces a GPU.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "precision/codec_ops_on.h"
#include "precision/reference_block.h"
#include "support/lockstep_group.h"

namespace mpt {
namespace {

using test::HostEncoded;
using test::HostMatrix;

// One step of every update block: load, change, count, round (kept in `rounded`), store.
template <class Codec>
struct StepBlock {
  BlockGrid grid;
  Codec codec;
  DitherSource source;
  float* rounded;        // [rows, cols]
  int64_t* saturated;    // per update block, nvfp4
  const float* changes;  // [rows, cols], factors

  template <class G>
  void operator()(G group, int64_t index) const {
    const BlockSpan span = grid.span(index);
    const LanePart<G> part(group, span);
    float x[LanePart<G>::kSize];
    codec.load(group, span, x);
    for (int k = 0; k < part.kSize; ++k)
      x[k] = k < part.size ? x[k] * changes[span.row * grid.cols + part.col + k] : 1e9f;
    const auto dither = source.draw(group, span);
    if constexpr (requires { codec.saturated_blocks(group, span, x); })
      __atomic_fetch_add(saturated + index, codec.saturated_blocks(group, span, x),
                         __ATOMIC_RELAXED);
    float kept[LanePart<G>::kSize];
    std::copy_n(x, part.kSize, kept);
    codec.round(group, span, kept, dither);
    codec.store(group, span, x, dither);
    for (int k = 0; k < part.size; ++k) rounded[span.row * grid.cols + part.col + k] = kept[k];
  }
};

struct Outcome {
  HostEncoded weights;
  HostMatrix rounded;
  std::vector<int64_t> saturated;
};

template <int kLanes>
void run_blocks(int64_t blocks, const auto& f) {
  if constexpr (kLanes == 1)
    for (int64_t block = 0; block < blocks; ++block) f(SerialGroup{}, block);
  else
    test::run_lockstep<kLanes>(blocks, f);
}

constexpr int64_t kRows = 3;

template <int kLanes>
Outcome outcome(const WeightEncoding& encoding, int64_t cols, Rounding rounding) {
  Outcome result{
      HostEncoded(encoding, {kRows, cols, 5}), HostMatrix(DType::kF32, {kRows, cols}), {}};
  HostMatrix source(DType::kF32, {kRows, cols}), changes(DType::kF32, {kRows, cols});
  test::Draws draws(12);
  source.fill([&](int64_t, int64_t) { return draws.signed_binades(-8, 1); });
  // Some blocks grow beyond the range of their scales, some shrink, some vanish.
  changes.fill([&](int64_t, int64_t c) {
    const int64_t block = c / 16 % 5;
    return float(block == 0 ? 1e6 : block == 1 ? 1e-3 : block == 2 ? 0 : draws.uniform(0.9, 1.1));
  });
  const test::Ops ops(kRows);
  ops->encode(source, result.weights.view());
  const BlockGrid grid{kRows, cols};
  result.saturated.resize(size_t(grid.blocks()));
  with_codec(result.weights.view(), [&]<class Codec>(const Codec& codec) {
    run_blocks<kLanes>(grid.blocks(),
                       StepBlock<Codec>{grid,
                                        codec,
                                        {.rounding = rounding, .seed = 3, .tensor = 4, .step = 5},
                                        result.rounded.view().as<float>(),
                                        result.saturated.data(),
                                        changes.view().as<float>()});
  });
  return result;
}

std::vector<WeightEncoding> lane_encodings() {
  std::vector<WeightEncoding> all;
  for (const int64_t block : {16, 32, 64, 128, 256})
    for (const Fp8ScaleMode mode : {Fp8ScaleMode::kPow2, Fp8ScaleMode::kFp16})
      all.push_back(
          {.format = WeightFormat::kBlockFp8, .fp8_block_size = block, .fp8_scale_mode = mode});
  for (const Nvfp4ScaleMode mode : {Nvfp4ScaleMode::kSticky, Nvfp4ScaleMode::kLive})
    all.push_back({.format = WeightFormat::kNvfp4, .nvfp4_scale_mode = mode});
  all.push_back({.format = WeightFormat::kMxfp8});
  return all;
}

std::string name_of_case(const WeightEncoding& e, int64_t cols, Rounding rounding) {
  return fmt::format("{} block {} {} {}, {} columns, {}", name_of(e.format), e.fp8_block_size,
                     name_of(e.fp8_scale_mode), name_of(e.nvfp4_scale_mode), cols,
                     name_of(rounding));
}

void expect_same(const Outcome& a, const Outcome& b) {
  EXPECT_TRUE(a.weights == b.weights) << "stored bits";
  EXPECT_TRUE(a.rounded == b.rounded) << "round()";
  EXPECT_EQ(a.saturated, b.saturated);
  EXPECT_TRUE(b.weights.padding_untouched());
}

// Widths: whole update blocks, a partial update block, partial blocks, an odd element, less than a
// lane.
TEST(CodecLanes, SameBitsAsOneLane) {
  for (const int64_t cols : {512, 300, 21, 1})
    for (const WeightEncoding& encoding : lane_encodings())
      for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
        SCOPED_TRACE(name_of_case(encoding, cols, rounding));
        const Outcome one = outcome<1>(encoding, cols, rounding);
        EXPECT_TRUE(one.weights.padding_untouched());
        expect_same(one, outcome<4>(encoding, cols, rounding));
        expect_same(one, outcome<32>(encoding, cols, rounding));
      }
}

// round() equals load() after store().
TEST(CodecLanes, RoundIsStoreAndLoad) {
  for (const int64_t cols : {300, 21})
    for (const WeightEncoding& encoding : lane_encodings())
      for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
        SCOPED_TRACE(name_of_case(encoding, cols, rounding));
        const Outcome one = outcome<1>(encoding, cols, rounding);
        HostMatrix loaded(DType::kF32, {kRows, cols});
        const test::Ops ops(kRows);
        ops->decode(one.weights.view(), loaded);
        EXPECT_TRUE(loaded == one.rounded);
      }
}

// The nibble next to the last element stays zero.
TEST(CodecLanes, PadNibbleIsZero) {
  const WeightEncoding sticky{.format = WeightFormat::kNvfp4};
  for (const int64_t cols : {1, 21, 257}) {
    const Outcome one = outcome<32>(sticky, cols, Rounding::kStochastic);
    for (int64_t r = 0; r < kRows; ++r) {
      EXPECT_EQ(one.weights.codes.bits(r, cols / 2) >> 4, 0u);
      for (int64_t i = cols / 2 + 1; i < one.weights.codes.view().cols; ++i)
        EXPECT_EQ(one.weights.codes.bits(r, i), 0u);
    }
  }
}

// Rescaling, with scales of every size.
template <int kLanes>
HostEncoded rescaled(int64_t cols) {
  HostEncoded weights({.format = WeightFormat::kNvfp4}, {2, cols, 3});
  weights.tensor_scale.set(0, 0, 0.25f);
  const EncodedTensor view = weights.view();
  test::Draws draws(13);
  for (int64_t r = 0; r < 2; ++r)
    for (int64_t b = 0; b < view.block_scales.cols; ++b) {
      view.block_scales.as<uint8_t>()[r * view.block_scales.stride + b] =
          uint8_t(draws.index(0x7F));
      for (int64_t i = 8 * b; i < 8 * b + 8; ++i)
        if (2 * i < cols)
          view.codes.as<uint8_t>()[r * view.codes.stride + i] =
              uint8_t(draws.index(2 * i + 1 < cols ? 256 : 16));
    }
  const float largest = 0x7E;
  const BlockGrid grid{2, cols};
  run_blocks<kLanes>(grid.blocks(), RescaleBlock<Nvfp4Codec>{grid, Nvfp4Codec(view), &largest});
  return weights;
}
TEST(CodecLanes, RescaleSameBitsAsOneLane) {
  for (const int64_t cols : {512, 301}) {
    const HostEncoded one = rescaled<1>(cols);
    EXPECT_TRUE(one.padding_untouched());
    EXPECT_TRUE(one == rescaled<4>(cols));
    EXPECT_TRUE(one == rescaled<32>(cols));
    EXPECT_EQ(cols % 2 == 0 ? 0u : one.codes.bits(1, cols / 2) >> 4, 0u);
  }
}

}  // namespace
}  // namespace mpt
