// optimizer.nvfp4_additive_scale = block: the additive rate of a weight is lr s_b S_g / mean(s_b
// S_g), its block's scale over the mean of those of the tensor's elements, as stored before the
// step.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>
#include <omp.h>

#include "optim/combinations.h"
#include "optim/reference_rule.h"
#include "precision/codecs/nvfp4.h"
#include "support/draws.h"

namespace mpt {
namespace {

using test::Draws;
using test::FlatConfig;
using test::OptimizerRun;
using test::RunSetup;

// Rows of two update blocks whose last block has 5 elements.
const test::TargetShape kShape{.rows = 7, .cols = 293, .stride = 304, .physical_rows = 16};

RunSetup setup_of(const Json& keys, Nvfp4ScaleMode mode, Nvfp4AdditiveScale scale) {
  FlatConfig config = test::optimizer_config(keys);
  config.lr_additive = 3e-2;
  config.nvfp4_additive_scale = scale;
  return {.config = config,
          .options = {.state = Format::kF32},
          .encoding = {.format = WeightFormat::kNvfp4, .nvfp4_scale_mode = mode}};
}

uint8_t& scale_byte(const EncodedTensor& w, int64_t row, int64_t col) {
  return w.block_scales.as<uint8_t>()[row * w.block_scales.stride + col / kNvfp4Block];
}
double scale_at(const EncodedTensor& w, int64_t row, int64_t col) {
  return decode<kE4M3>(scale_byte(w, row, col));
}

// Blocks that differ by up to a factor of 64.
void start_scaled(OptimizerRun& run) {
  Draws draws(71);
  run.encode(0, [&](int64_t row, int64_t col) {
    return std::ldexp(draws.signed_binades(-8, -6), int((row + col / kNvfp4Block) % 7));
  });
  run.fill_gradient(0, [&](int64_t, int64_t) { return draws.signed_binades(-12, -6); });
  run.optimizer().weights_initialized();
}

// Computes in FP64 and with the tensor's scale, which program and test may omit.
double mean_scale(const EncodedTensor& w, double tensor_scale) {
  double sum = 0;
  for (int64_t row = 0; row < w.rows; ++row)
    for (int64_t col = 0; col < w.cols; ++col) sum += scale_at(w, row, col) * tensor_scale;
  return sum / double(w.elements());
}

// Returns the weights after a first step, in FP32 before they are stored.
std::vector<float> expected_weights(OptimizerRun& run, const RunSetup& setup) {
  const EncodedTensor& w = run.targets()[0].weights;
  const std::vector<float> before = run.decoded(0);
  const double tensor_scale = w.tensor_scale.as<float>()[0], mean = mean_scale(w, tensor_scale);
  const auto mean_without = float(mean_scale(w, 1));
  const StepScalars step{.t = 1};
  std::vector<float> after;
  for (int64_t row = 0; row < w.rows; ++row)
    for (int64_t col = 0; col < w.cols; ++col) {
      const float scale = float(scale_at(w, row, col)) / mean_without;
      // Rounded twice, to the mean and to the quotient; the tensor's scale cancels.
      EXPECT_NEAR(scale, scale_at(w, row, col) * tensor_scale / mean,
                  1.01 * 0x1p-23 * double(scale));
      test::ReferenceState state;
      const test::ReferenceRule rule{setup.config, step, {}, scale};
      after.push_back(rule.next(before[size_t(row * w.cols + col)],
                                test::element(run.gradient(), row, col), state));
    }
  return after;
}

// Stores values like the end of a step.
void store(OptimizerRun& run, const std::vector<float>& values) {
  const EncodedTensor& w = run.targets()[0].weights;
  if (w.encoding.nvfp4_scale_mode == Nvfp4ScaleMode::kLive)
    return run.encode(0,
                      [&](int64_t row, int64_t col) { return values[size_t(row * w.cols + col)]; });
  const BlockGrid grid{w.rows, w.cols};
  for (int64_t block = 0; block < grid.blocks(); ++block) {
    const BlockSpan span = grid.span(block);
    float x[kUpdateBlock] = {};
    for (int64_t k = 0; k < span.count; ++k)
      x[k] = values[size_t(span.row * w.cols + span.col + k)];
    Nvfp4Codec(w).store(SerialGroup{}, span, x, DitherSource{}.draw(SerialGroup{}, span));
  }
  run.optimizer().rescale();
}

std::vector<uint32_t> stored(const OptimizerRun& run) {
  std::vector<uint32_t> all;
  for (const NamedTensor& piece : run.targets()[0].weights.pieces("w")) {
    const std::vector<uint32_t> bits = test::bits_of_tensor(piece.tensor);
    all.insert(all.end(), bits.begin(), bits.end());
  }
  return all;
}

class BlockRates : public testing::TestWithParam<Nvfp4ScaleMode> {};

TEST_P(BlockRates, AreTheFormulasToTheBit) {
  for (const Json& keys : {test::adamw_keys(), test::m_plus_adam_keys()}) {
    const RunSetup setup = setup_of(keys, GetParam(), Nvfp4AdditiveScale::kBlock);
    OptimizerRun run(setup, {kShape}), expected(setup, {kShape});
    start_scaled(run);
    start_scaled(expected);
    const std::vector<uint32_t> before = stored(run);
    store(expected, expected_weights(expected, setup));
    run.step(1);
    EXPECT_EQ(stored(run), stored(expected)) << keys.dump();
    EXPECT_NE(stored(run), before);
    OptimizerRun one_rate(setup_of(keys, GetParam(), Nvfp4AdditiveScale::kOff), {kShape});
    start_scaled(one_rate);
    one_rate.step(1);
    EXPECT_NE(stored(run), stored(one_rate)) << keys.dump();
  }
}

TEST_P(BlockRates, OfEqualScalesAreTheRate) {
  for (const Json& keys : {test::adamw_keys(), test::m_plus_adam_keys()}) {
    std::vector<std::vector<uint32_t>> results;
    for (const auto scale : {Nvfp4AdditiveScale::kOff, Nvfp4AdditiveScale::kBlock}) {
      OptimizerRun run(setup_of(keys, GetParam(), scale), {kShape});
      start_scaled(run);
      Draws draws(72);
      run.encode(0, [&](int64_t, int64_t col) {
        return col % kNvfp4Block == 0 ? 1.3f : draws.signed_binades(-3, -1);
      });
      run.step(1);
      results.push_back(run.everything());
    }
    EXPECT_EQ(results[0], results[1]);
  }
}

// Without a usable scale the rate is unchanged, so that weights can leave zero; a single block of
// zeros among others has scale 0 and takes no additive step.
TEST_P(BlockRates, OfScalesThatAreZero) {
  const RunSetup setup = setup_of(test::adamw_keys(), GetParam(), Nvfp4AdditiveScale::kBlock);
  OptimizerRun zeros(setup, {kShape}), some(setup, {kShape});
  start_scaled(zeros);
  start_scaled(some);
  zeros.encode(0, [](int64_t, int64_t) { return 0.0f; });
  some.encode(0, [](int64_t, int64_t col) { return col < 2 * kNvfp4Block ? 0.0f : 0.1f; });
  for (OptimizerRun* run : {&zeros, &some}) run->step(1);
  for (const float w : zeros.decoded(0)) EXPECT_NE(w, 0.0f);
  const std::vector<float> decoded = some.decoded(0);
  for (int64_t col = 0; col < kShape.cols; ++col)
    EXPECT_EQ(decoded[size_t(col)] == 0, col < 2 * kNvfp4Block);
}

INSTANTIATE_TEST_SUITE_P(Modes, BlockRates,
                         testing::Values(Nvfp4ScaleMode::kSticky, Nvfp4ScaleMode::kLive),
                         [](const auto& instance) { return std::string(name_of(instance.param)); });

// For any bytes and any number of threads. The largest scales and the smallest: sums are exact.
TEST(MeanScale, IsOverElements) {
  OptimizerRun run(setup_of(test::adamw_keys(), Nvfp4ScaleMode::kSticky, Nvfp4AdditiveScale::kOff),
                   {kShape});
  const EncodedTensor& w = run.targets()[0].weights;
  Draws draws(73);
  for (int64_t row = 0; row < w.rows; ++row)
    for (int64_t col = 0; col < w.cols; col += kNvfp4Block)
      scale_byte(w, row, col) = uint8_t(col % 3 == 0 ? draws.index(8) : draws.index(0x7F));
  long double sum = 0;
  for (int64_t row = 0; row < w.rows; ++row)
    for (int64_t col = 0; col < w.cols; ++col) sum += (long double)(scale_at(w, row, col));
  const auto device = make_cpu_device(3);
  const auto ops = make_ops<OptimizerOps>(device->stream());
  std::vector<double> rows(size_t(w.rows));
  float mean = 0;
  for (const int threads : {1, 2, 3}) {
    omp_set_num_threads(threads);
    ops->find_mean_scale(
        w, {reinterpret_cast<std::byte*>(rows.data()), DType::kF64, 1, w.rows, w.rows},
        {reinterpret_cast<std::byte*>(&mean), DType::kF32, 1, 1, 1});
    EXPECT_EQ(mean, float(double(sum) / double(w.elements()))) << threads << " threads";
  }
  EXPECT_THROW(ops->find_mean_scale(w, {nullptr, DType::kF64, 1, w.rows - 1, w.rows - 1}, {}),
               LogicError);
}

}  // namespace
}  // namespace mpt
