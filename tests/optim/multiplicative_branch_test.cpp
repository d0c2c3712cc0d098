// Effect of the multiplicative branch of M+Adam on a weight, on synthetic gradients: divided by
// |w|, the step along the gradient of log2|w| is Adam's step without momentum, -lr_m g / (sqrt(v^)
// + eps), whose size does not depend on |w|. Prints the figures stated in the documentation.
#include <cmath>
#include <cstdio>
#include <numbers>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "optim/flat_config.h"
#include "support/draws.h"

namespace mpt {
namespace {

// Uses the Box-Muller transform.
double normal(test::Draws& draws) {
  const double radius = std::sqrt(-2 * std::log(1 - draws.uniform(0, 1)));
  return radius * std::cos(2 * std::numbers::pi * draws.uniform(0, 1));
}

constexpr int kWeights = 1 << 14, kDriftSteps = 200;

// Second moments of pairs (x, y).
class Moments2 {
 public:
  void add(double x, double y) {
    ++count_, x_ += x, y_ += y, xx_ += x * x, yy_ += y * y, xy_ += x * y;
  }
  [[nodiscard]] double correlation() const {
    const double covariance = xy_ - x_ * y_ / count_;
    return covariance / std::sqrt((xx_ - x_ * x_ / count_) * (yy_ - y_ * y_ / count_));
  }
  [[nodiscard]] double rms_ratio() const { return std::sqrt(xx_ / yy_); }

 private:
  double count_ = 0, x_ = 0, y_ = 0, xx_ = 0, yy_ = 0, xy_ = 0;
};

struct Found {
  Moments2 with_adam;    // the step, and Adam's without momentum
  Moments2 with_weight;  // sizes of the step and of the weight
  Moments2 branches;     // the step, and the additive branch's
};

// The rates tuned for BF16 weights of pico (docs/results/pico/tuned.json), without decay.
test::FlatConfig tuned(const std::string& rule) {
  test::FlatConfig config;
  config.rule = rule;
  config.lr_additive = 4e-3;
  config.lr_multiplicative = 2e-3;
  config.beta2 = 0.95;
  config.weight_decay_additive = 0;
  return config;
}

struct Weight {
  float w;
  double gradient;  // its size, which differs from weight to weight
  float state[3] = {};
};

std::vector<Weight> weights(double deviation, test::Draws& draws) {
  std::vector<Weight> found(kWeights);
  for (Weight& weight : found)
    weight = {.w = float(deviation * normal(draws)), .gradient = 1e-3 * std::exp(normal(draws))};
  return found;
}

// Returns the last of kDriftSteps in BF16, taken with independent gradients; weights are initially
// normal with this deviation, and move.
Found last_step(double deviation) {
  const test::FlatConfig config = tuned("m_plus_adam");
  const auto keys = keys_of<MPlusAdam::Config>(OptimizerConfig(config).rule);
  test::Draws draws(7);
  std::vector<Weight> all = weights(deviation, draws);
  Found found;
  for (int64_t t = 1; t <= kDriftSteps; ++t) {
    const StepScalars step{.t = t};
    const auto rule = MPlusAdam::Step<ScaleDecay>::at(keys, step, {});
    for (Weight& weight : all) {
      const auto g = float(weight.gradient * normal(draws));
      const auto move = rule.advance<EmaOnce>(weight.w, g, weight.state);
      if (t == kDriftSteps) {
        const double taken = double(weight.w) * double(move.relative);
        const double root = double(rule.moments.root<EmaOnce>(weight.state[1]));
        found.with_adam.add(taken, -config.lr_multiplicative * double(g) / root);
        found.with_weight.add(std::fabs(taken), std::fabs(weight.w));
        found.branches.add(taken, config.lr_additive * double(move.additive));
      }
      weight.w = rounded_to<bf16>(rule.moved(weight.w, move));
    }
  }
  std::printf(
      "weights of RMS %g at first: correlation with Adam's step without momentum %.3f, RMS ratio "
      "%.3f, correlation of the sizes of step and weight %.3f, RMS over the additive branch's "
      "%.2f\n",
      deviation, found.with_adam.correlation(), found.with_adam.rms_ratio(),
      found.with_weight.correlation(), found.branches.rms_ratio());
  return found;
}

// From 16 thousand pairs a correlation errs by less than 0.01; rates are far below weights of RMS
// 1, so that v_e hardly sees them move, and about as large as weights of RMS 0.02.
TEST(MultiplicativeBranch, IsAdamWithoutMomentum) {
  const Found found = last_step(1.0);
  EXPECT_GT(found.with_adam.correlation(), 0.98);
  EXPECT_NEAR(found.with_adam.rms_ratio(), 1.0, 0.02);
  EXPECT_LT(std::fabs(found.with_weight.correlation()), 0.05);
  // At half the additive rate; a mean of independent gradients with beta1 = 0.9 has an RMS of
  // sqrt(0.1 / 1.9).
  EXPECT_NEAR(found.branches.rms_ratio(), 0.5 / std::sqrt(0.1 / 1.9), 0.1);
}

TEST(MultiplicativeBranch, IsNearlySoWhereWeightsMoveByTheirOwnSize) {
  const Found found = last_step(0.02);
  EXPECT_GT(found.with_adam.correlation(), 0.9);
  EXPECT_NEAR(found.with_adam.rms_ratio(), 1.0, 0.1);
  EXPECT_LT(found.with_weight.correlation(), 0.25);
}

// A multiplicative step: Madam's steps grow with the weight.
TEST(MultiplicativeBranch, UnlikeMadamsStep) {
  const auto keys = keys_of<Madam::Config>(OptimizerConfig(tuned("madam")).rule);
  test::Draws draws(7);
  Moments2 sizes;
  for (int i = 0; i < kWeights; ++i) {
    const auto w = float(normal(draws));
    const auto rule = Madam::Step::at(keys, {.t = 1}, {});
    float v = 0;
    sizes.add(std::fabs(rule.change(w, rule.advance<EmaOnce>(w, float(normal(draws)), &v))),
              std::fabs(w));
  }
  EXPECT_GT(sizes.correlation(), 0.5);
}

}  // namespace
}  // namespace mpt
