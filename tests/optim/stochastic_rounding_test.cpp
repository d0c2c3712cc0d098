// Stochastic rounding in the optimizer's step: which bits it draws, and that weights and states are
// right on average.
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "optim/optimizer_fixture.h"
#include "support/draws.h"

namespace mpt {
namespace {

using test::bits_of_tensor;
using test::Draws;
using test::element;
using test::fill_tensor;
using test::FlatConfig;
using test::OptimizerRun;

constexpr uint64_t kSeed = 0x0123456789abcdef;

FlatConfig stochastic(const std::string& rule) {
  FlatConfig config;
  config.rule = rule;
  config.weight_rounding = WeightRounding::kStochastic;
  config.lr_additive = 1e-3;
  config.lr_multiplicative = 1e-3;
  return config;
}

const std::string kRules[] = {"adamw", "madam", "m_plus_adam"};
const std::vector<test::TargetShape> kTwoMatrices{{.rows = 3, .cols = 301, .stride = 304},
                                                  {.rows = 2, .cols = 70}};

void fill(OptimizerRun& run) {
  for (size_t i = 0; i < 2; ++i) {
    Draws draws(60 + i);
    fill_tensor(run.weights(i),
                [&](int64_t, int64_t) { return rounded_to<bf16>(draws.bell(0.1)); });
    fill_tensor(run.gradient(i), [&](int64_t, int64_t) { return draws.bell(0.01); });
  }
  run.optimizer().weights_initialized();
}

// Expects `rounded` to be `exact` rounded with the words of this stream.
void expect_words(const Tensor& rounded, const Tensor& exact, RandomCounter counter) {
  for (int64_t r = 0; r < exact.rows; ++r)
    for (int64_t c = 0; c < exact.cols; ++c) {
      counter.row = uint32_t(r);
      const bf16 expected =
          bf16_stochastic(exact.as<float>()[r * exact.stride + c], counter.word(uint32_t(c)));
      ASSERT_EQ(rounded.as<bf16>()[r * rounded.stride + c].bits, expected.bits) << r << "," << c;
    }
}

// The words are those of (seed, tensor, row, column, step, stream): an fp32 optimizer provides the
// values before rounding.
TEST(StochasticRounding, DrawsByLogicalCoordinates) {
  for (const std::string& rule : kRules) {
    OptimizerRun exact({.config = stochastic(rule),
                        .options = {.state = Format::kF32},
                        .encoding = {.format = WeightFormat::kF32}},
                       kTwoMatrices);
    OptimizerRun rounded({.config = stochastic(rule),
                          .options = {.state_rounding = Rounding::kStochastic, .seed = kSeed},
                          .encoding = {.format = WeightFormat::kBF16}},
                         kTwoMatrices);
    fill(exact);
    fill(rounded);
    constexpr int64_t kStep = 1;
    exact.step(kStep);
    rounded.step(kStep);
    for (size_t i = 0; i < 2; ++i) {
      const RandomCounter counter{kSeed, uint32_t(i + 1), 0, uint32_t(kStep),
                                  kWeightRoundingStream};
      expect_words(rounded.weights(i), exact.weights(i), counter);
      for (const StateInfo& state : test::states_of(stochastic(rule))) {
        RandomCounter of_state = counter;
        of_state.stream = state.rounding;
        const std::string name = fmt::format("{}/w{}", state.name, i);
        expect_words(rounded.state(name), exact.state(name), of_state);
      }
    }
  }
  const std::span<const StateInfo> states = test::states_of(stochastic("m_plus_adam"));
  EXPECT_EQ(states[0].rounding, kMomentumRoundingStream);
  EXPECT_EQ(states[1].rounding, kVarianceRoundingStream);
  EXPECT_EQ(states[2].rounding, kExponentVarianceRoundingStream);
  EXPECT_EQ(test::states_of(stochastic("madam"))[0].rounding, kVarianceRoundingStream);
}

// Another step or another seed draws other bits; new moments continue with the bits of the run.
TEST(StochasticRounding, StepsAndSeedsDrawAnew) {
  const auto result = [](uint64_t seed, int64_t t, int64_t earlier = 0) {
    FlatConfig config = stochastic("adamw");
    config.bias_correction = false;  // so that the step has no other effect
    OptimizerRun run(
        {.config = config, .options = {.seed = seed}, .encoding = {.format = WeightFormat::kBF16}},
        kTwoMatrices);
    fill(run);
    run.optimizer().step({.t = t, .earlier = earlier});
    return bits_of_tensor(run.weights());
  };
  EXPECT_EQ(result(1, 1), result(1, 1));
  EXPECT_NE(result(1, 1), result(1, 2));
  EXPECT_NE(result(1, 1), result(2, 1));
  EXPECT_NE(result(1, 1), result(1, 1, 3));
  EXPECT_EQ(result(1, 4), result(1, 1, 3));
}

struct Mean {
  double of = 0, exact = 0, step = 0;  // step: the distance of the two neighbors that occur
  int64_t draws = 0;
};

// Returns the mean of a weight after one update, over elements and seeds, in a format.
Mean mean_after_update(const WeightEncoding& encoding, float w0, float g) {
  constexpr int64_t kCols = 4096;
  constexpr uint64_t kSeeds = 24;
  const auto run_with = [&](const WeightEncoding& weights, uint64_t seed) {
    OptimizerRun run({.config = stochastic("m_plus_adam"),
                      .options = {.state = Format::kF32, .seed = seed},
                      .encoding = weights},
                     {{.cols = kCols}});
    run.encode(0, [=](int64_t, int64_t) { return w0; });
    const float decoded = run.decoded(0)[0];
    fill_tensor(run.gradient(), [=](int64_t, int64_t) { return g; });
    run.step(1);
    return std::pair(run.decoded(0), decoded);
  };
  Mean mean;
  double least = INFINITY, most = -INFINITY;
  float start = w0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto [values, decoded] = run_with(encoding, seed);
    start = decoded;
    for (const float x : values) {
      mean.of += double(x);
      least = std::min(least, double(x));
      most = std::max(most, double(x));
    }
  }
  OptimizerRun exact({.config = stochastic("m_plus_adam"),
                      .options = {.state = Format::kF32},
                      .encoding = {.format = WeightFormat::kF32}},
                     {{.cols = 1}});
  exact.encode(0, [=](int64_t, int64_t) { return start; });
  fill_tensor(exact.gradient(), [=](int64_t, int64_t) { return g; });
  exact.step(1);
  mean.draws = kCols * int64_t(kSeeds);
  mean.of /= double(mean.draws);
  mean.exact = double(element(exact.weights(), 0, 0));
  mean.step = most - least;
  return mean;
}

TEST(StochasticRounding, OneUpdateIsRightOnAverage) {
  const std::vector<WeightEncoding> encodings{
      {.format = WeightFormat::kBF16},
      {.format = WeightFormat::kBlockFp8, .fp8_block_size = 16},
      {.format = WeightFormat::kBlockFp8},
      {.format = WeightFormat::kNvfp4},
      {.format = WeightFormat::kMxfp8},
  };
  for (const WeightEncoding& encoding : encodings)
    for (const float w0 : {0.3f, -0.0271f}) {
      const Mean mean = mean_after_update(encoding, w0, 0.01f);
      SCOPED_TRACE(fmt::format("{} {}", name_of(encoding.format), w0));
      EXPECT_GT(mean.step, 0) << "nothing was rounded at random";
      // A variable with two values that far apart has a deviation of at most half of it; five
      // deviations.
      EXPECT_NEAR(mean.of, mean.exact, 5 * 0.5 * mean.step / std::sqrt(double(mean.draws)));
    }
}

// BF16 states that decay by less than half a step stall under rounding to nearest but not under
// stochastic rounding.
TEST(StochasticRounding, StatesKeepDecaying) {
  const auto mean_v = [](Rounding rounding) {
    FlatConfig config;
    config.rule = "adamw";
    config.beta2 = 0.999;
    OptimizerRun run({.config = config,
                      .options = {.state_rounding = rounding},
                      .encoding = {.format = WeightFormat::kBF16}},
                     {{.cols = 2048}});
    fill_tensor(run.state("v/w0"), [](int64_t, int64_t) { return 1.0f; });
    for (int64_t t = 1; t <= 100; ++t) run.step(t);
    double sum = 0;
    for (int64_t c = 0; c < 2048; ++c) sum += double(element(run.state("v/w0"), 0, c));
    return sum / 2048;
  };
  EXPECT_GT(mean_v(Rounding::kNearest), 0.99);
  // 100 roundings of steps of 2^-8 at most: five deviations of the mean.
  EXPECT_NEAR(mean_v(Rounding::kStochastic), std::pow(double(0.999f), 100),
              5 * 0x1p-9 * 10 / std::sqrt(2048.0));
}

// Beyond the largest BF16: infinity as published, or the largest.
TEST(StochasticRounding, Saturation) {
  for (const bool saturate : {false, true}) {
    FlatConfig config = stochastic("adamw");
    config.sr_saturate = saturate;
    config.lr_additive = 5e35;  // the next BF16 is 1.3e36 away
    config.weight_decay_additive = 0;
    OptimizerRun run({.config = config, .encoding = {.format = WeightFormat::kBF16}},
                     {{.cols = 512}});
    const float largest = to_float(bf16{0x7F7F});
    fill_tensor(run.weights(), [=](int64_t, int64_t c) { return c % 2 == 0 ? largest : -largest; });
    fill_tensor(run.gradient(), [](int64_t, int64_t c) { return c % 2 == 0 ? -1.0f : 1.0f; });
    run.step(1);
    int infinite = 0;
    for (int64_t c = 0; c < 512; ++c) {
      const float w = element(run.weights(), 0, c);
      infinite += std::isinf(w);
      ASSERT_EQ(std::signbit(w), c % 2 != 0);
      ASSERT_GE(std::fabs(w), largest);
    }
    EXPECT_EQ(infinite > 0, !saturate);
    EXPECT_LT(infinite, 512);
  }
}

}  // namespace
}  // namespace mpt
