// Rounding errors that return through the first moment: each once in total, so that steps below
// half a unit in the last place add up.
#include "optim/update/error_feedback.h"

#include <cmath>

#include <gtest/gtest.h>

#include "optim/optimizer_fixture.h"

namespace mpt {
namespace {

using test::fill_tensor;
using test::FlatConfig;
using test::OptimizerRun;

// Returns the change of weights caused only by a first moment of `m` in `steps` steps at a constant
// second moment.
double returned(const AdamW::Step& step, float m, float v, int steps) {
  const double root = std::sqrt(double(v)) + double(step.moments.eps);
  double sum = 0;
  for (int i = 0; i < steps; ++i) {
    m *= step.moments.beta1;
    sum -= double(step.lr) * double(m) / (double(step.moments.correction1.value) * root);
  }
  return sum;
}

TEST(ErrorFeedback, AnErrorReturnsOnceInTotal) {
  for (const double beta1 : {0.5, 0.9, 0.95})
    for (const double lr : {1e-4, 3e-2})
      for (const int64_t t : {1, 7, 1000})
        for (const float v : {0.0f, 1e-9f, 3.0f}) {
          AdamW::Config config;
          config.beta1 = beta1;
          config.lr_additive = lr;
          const auto feedback = ErrorFeedback<AdamW::Step>::at(config, {.t = t}, {});
          // The correction of v must not move: its state makes v / c2 = v.
          float state[2] = {0.0f, v * feedback.step.moments.correction2.value};
          const float error = 0.00123f;
          feedback.take<EmaOnce>(error, state);
          EXPECT_NEAR(returned(feedback.step, state[0], v, 2000) / double(error), 1.0, 1e-5)
              << "beta1 " << beta1 << " lr " << lr << " t " << t << " v " << v;
        }
}

TEST(ErrorFeedback, NothingAtARateOfZero) {
  AdamW::Config config;
  config.lr_additive = 1e-3;
  const auto feedback =
      ErrorFeedback<AdamW::Step>::at(config, {.t = 5, .lr_factor = 0}, TensorScalars{});
  float state[2] = {0.25f, 1.0f};
  feedback.take<EmaOnce>(0.0f, state);
  EXPECT_EQ(state[0], 0.25f);
}

// A run of BF16 weights, 1 at the start, whose optimizer's weights move by `lr` per step.
struct SteadyRun {
  OptimizerRun run;
  int64_t t = 0;

  SteadyRun(WeightRounding rounding, ErrorFeedbackMode feedback, const std::string& rule, double lr,
            double beta1)
      : run({.config = config(rounding, feedback, rule, lr, beta1),
             .options = {.state = Format::kF32, .seed = 5},
             .encoding = {.format = WeightFormat::kBF16},
             .gradient = DType::kF32},
            {{.rows = 16, .cols = 100}}) {
    fill_tensor(run.weights(), [](int64_t, int64_t) { return 1.0f; });
    run.optimizer().weights_initialized();
  }
  static FlatConfig config(WeightRounding rounding, ErrorFeedbackMode feedback,
                           const std::string& rule, double lr, double beta1) {
    FlatConfig config;
    config.rule = rule;
    config.lr_additive = lr;
    config.beta1 = beta1;
    config.weight_decay_additive = 0;
    config.gradient_ratio = 0;
    config.weight_rounding = rounding;
    config.error_feedback = feedback;
    return config;
  }
  void step() {
    fill_tensor(run.gradient(), [](int64_t, int64_t) { return -1e-2f; });
    run.step(int(++t));
  }
  // Mean change of the weights.
  double moved() {
    double sum = 0;
    for (int64_t row = 0; row < 16; ++row)
      for (int64_t col = 0; col < 100; ++col)
        sum += double(test::element(run.weights(), row, col)) - 1;
    return sum / 1600;
  }
};

// Steps of a tenth of half a unit in the last place, always in one direction.
double moved_after(int steps, WeightRounding rounding, ErrorFeedbackMode feedback,
                   const std::string& rule) {
  SteadyRun run(rounding, feedback, rule, 1e-4, 0.9);
  for (int t = 1; t <= steps; ++t) run.step();
  return run.moved();
}

TEST(ErrorFeedback, SmallStepsAddUp) {
  constexpr double kUlp = 1.0 / 128, kWanted = 1000 * 1e-4;
  for (const std::string rule : {"adamw", "additive_twin", "m_plus_adam"}) {
    EXPECT_EQ(moved_after(2000, WeightRounding::kNearest, ErrorFeedbackMode::kOff, rule), 0.0);
    for (const WeightRounding rounding : {WeightRounding::kNearest, WeightRounding::kStochastic}) {
      const auto moved = [&](int steps) {
        return moved_after(steps, rounding, ErrorFeedbackMode::kMomentum, rule);
      };
      EXPECT_NEAR(moved(2000) - moved(1000), kWanted, kUlp) << rule << " " << name_of(rounding);
      // With nearest, m absorbs half a unit times beta1 / (1 - beta1) before weights move.
      EXPECT_NEAR(moved(2000), 2 * kWanted, kUlp + 9 * kUlp / 2)
          << rule << " " << name_of(rounding);
    }
  }
}

// docs/numerics.md: w' stays while |w' - z| < u / (2 (1 - beta1)), here with z moving by lr per
// step.
TEST(ErrorFeedback, NearestLagsByItsDeadZone) {
  constexpr double kUnit = 1.0 / 128, kLr = 1e-4;
  for (const double beta1 : {0.5, 0.75, 0.9, 0.95}) {
    const double zone = kUnit / (2 * (1 - beta1));
    const auto lags = [&](WeightRounding rounding) {
      SteadyRun run(rounding, ErrorFeedbackMode::kMomentum, "adamw", kLr, beta1);
      double z = 0, sum = 0, largest = 0;
      for (int t = 1; t <= 3000; ++t) {
        run.step();
        z += kLr;  // 1 / c1 and the first steps of m are in m and c1 alike
        if (t <= 2000) continue;
        const double lag = z - run.moved();
        sum += lag;
        largest = std::max(largest, lag);
      }
      return std::pair(sum / 1000, largest);
    };
    const double early = kLr * beta1 / (1 - beta1);  // z is ahead by it once m has its full size
    const auto [mean, largest] = lags(WeightRounding::kNearest);
    EXPECT_NEAR(largest, zone, 2 * kLr + early) << "beta1 " << beta1;
    EXPECT_NEAR(mean, zone - kUnit / 2, 2 * kLr + early) << "beta1 " << beta1;
    const double lag = lags(WeightRounding::kStochastic).first;
    EXPECT_NEAR(lag, 0, kUnit / 8) << "beta1 " << beta1;  // five standard deviations
  }
}

}  // namespace
}  // namespace mpt
