// Update statistics: they agree with what the step does, change nothing, and separate the branches.
#include <numeric>

#include <gtest/gtest.h>

#include "optim/combinations.h"
#include "optim/update/update_statistics_on.h"
#include "support/draws.h"

namespace mpt {
namespace {

using test::Combination;
using test::FlatConfig;
using test::OptimizerRun;

int64_t sum(const std::array<int64_t, kMagnitudeBuckets>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}
int64_t outcome_of(const UpdateStatistics& s, Branch branch, UpdateOutcome outcome) {
  return sum(s.outcomes[size_t(branch)][size_t(outcome)]);
}

// Two steps' worth of states, with zeros among weights and gradients.
void prepare(OptimizerRun& run) {
  test::Draws draws(5);
  for (size_t i = 0; i < run.targets().size(); ++i)
    run.encode(
        i, [&](int64_t, int64_t c) { return c % 11 == 3 ? 0.0f : draws.signed_binades(-20, 3); });
  run.optimizer().weights_initialized();
  const auto gradients = [&] {
    for (size_t i = 0; i < run.targets().size(); ++i)
      test::fill_tensor(run.gradient(i), [&](int64_t, int64_t c) {
        return c % 13 == 5 ? 0.0f : draws.signed_binades(-12, -2);
      });
  };
  gradients();
  run.step(1);
  gradients();
}

std::vector<UpdateStatistics> step_with_statistics(OptimizerRun& run, int64_t t) {
  std::vector<UpdateStatistics> found =
      run.optimizer().step_with_statistics({.t = t, .grad_scale = 1.0f});
  run.optimizer().rescale();
  return found;
}

test::RunSetup with_statistics(const Combination& combination) {
  test::RunSetup setup = combination.setup;
  setup.options.statistics = StepStatistics::kOnDemand;
  return setup;
}

// What became of the weights, by looking at them before and after the step.
struct Observed {
  int64_t moved = 0, sign_changed = 0, left_zero = 0, entered_zero = 0;
  std::array<int64_t, kMagnitudeBuckets> weights{};
};

Observed observed(const std::vector<float>& before, const std::vector<float>& after) {
  Observed o;
  for (size_t i = 0; i < before.size(); ++i) {
    const float w = before[i], next = after[i];
    o.moved += next != w;
    o.sign_changed += std::signbit(w) != std::signbit(next) && w != 0 && next != 0;
    o.left_zero += w == 0 && next != 0;
    o.entered_zero += w != 0 && next == 0;
    const std::vector<double> edges = bucket_edges();
    const auto above =
        std::upper_bound(edges.begin(), edges.end(), double(std::fabs(w))) - edges.begin();
    ++o.weights[w == 0 ? 0 : size_t(above)];
  }
  return o;
}

TEST(UpdateStatistics, AgreesWithTheStepOfEveryCombination) {
  for (const Combination& combination : test::every_combination()) {
    SCOPED_TRACE(combination.name);
    OptimizerRun run(with_statistics(combination), test::combination_shapes());
    OptimizerRun plain(combination.setup, test::combination_shapes());
    prepare(run);
    prepare(plain);
    std::vector<std::vector<float>> before;
    for (size_t i = 0; i < run.targets().size(); ++i) before.push_back(run.decoded(i));
    const std::vector<UpdateStatistics> statistics = step_with_statistics(run, 2);
    plain.step(2);
    ASSERT_EQ(run.everything(), plain.everything());
    // The end of a step may move all scales of an nvfp4 tensor and round small blocks again.
    if (combination.setup.encoding.format == WeightFormat::kNvfp4) continue;
    for (size_t i = 0; i < statistics.size(); ++i) {
      const UpdateStatistics& s = statistics[i];
      const Observed o = observed(before[i], run.decoded(i));
      ASSERT_EQ(s.name, run.targets()[i].name);
      ASSERT_EQ(s.weights, o.weights);
      ASSERT_EQ(outcome_of(s, Branch::kBoth, UpdateOutcome::kMoved), o.moved);
      ASSERT_EQ(outcome_of(s, Branch::kBoth, UpdateOutcome::kSignChanged), o.sign_changed);
      ASSERT_EQ(outcome_of(s, Branch::kBoth, UpdateOutcome::kLeftZero), o.left_zero);
      ASSERT_EQ(outcome_of(s, Branch::kBoth, UpdateOutcome::kEnteredZero), o.entered_zero);
      ASSERT_LE(outcome_of(s, Branch::kBoth, UpdateOutcome::kVanished), sum(s.weights) - o.moved);
    }
  }
}

FlatConfig m_plus_adam(double lr_additive, double lr_multiplicative) {
  Json keys = test::m_plus_adam_keys();
  keys["lr_additive"] = lr_additive;
  keys["lr_multiplicative"] = lr_multiplicative;
  return test::optimizer_config(keys);
}

// One step of 1,000 weights of BF16 from 1 up, all with the same gradient.
UpdateStatistics of_large_weights(const FlatConfig& config) {
  test::RunSetup setup{.config = config,
                       .options = {.statistics = StepStatistics::kOnDemand},
                       .encoding = {.format = WeightFormat::kBF16}};
  OptimizerRun run(setup, {{.rows = 4, .cols = 250}});
  run.encode(0, [](int64_t, int64_t) { return 1.25f; });
  test::fill_tensor(run.gradient(), [](int64_t, int64_t) { return 0.5f; });
  return step_with_statistics(run, 1).front();
}

TEST(UpdateStatistics, TellsTheBranchesApart) {
  // The direction of a first step is 1 in both branches. Half a step of BF16 at 1.25 is 2^-8: an
  // additive step of 1e-3 is lost, a multiplicative one of 1e-2 is not.
  const UpdateStatistics s = of_large_weights(m_plus_adam(1e-3, 1e-2));
  EXPECT_EQ(outcome_of(s, Branch::kAdditive, UpdateOutcome::kVanished), 1000);
  EXPECT_EQ(outcome_of(s, Branch::kAdditive, UpdateOutcome::kMoved), 0);
  EXPECT_EQ(outcome_of(s, Branch::kMultiplicative, UpdateOutcome::kMoved), 1000);
  EXPECT_EQ(outcome_of(s, Branch::kBoth, UpdateOutcome::kMoved), 1000);
  EXPECT_EQ(outcome_of(s, Branch::kBoth, UpdateOutcome::kVanished), 0);
}

TEST(UpdateStatistics, OfOneBranchAlone) {
  const UpdateStatistics additive = of_large_weights(m_plus_adam(1e-1, 0));
  EXPECT_EQ(additive.outcomes[size_t(Branch::kAdditive)], additive.outcomes[size_t(Branch::kBoth)]);
  EXPECT_EQ(outcome_of(additive, Branch::kMultiplicative, UpdateOutcome::kMoved), 0);
  EXPECT_EQ(outcome_of(additive, Branch::kMultiplicative, UpdateOutcome::kVanished), 0)
      << "a zero update does not vanish";
  EXPECT_EQ(of_large_weights(test::optimizer_config(test::adamw_keys())).branches, 1);
}

// A weight that changes because its block's scale does: fp16 scales drag, powers of two do not.
TEST(UpdateStatistics, SeesScaleDrag) {
  for (const Fp8ScaleMode mode : {Fp8ScaleMode::kPow2, Fp8ScaleMode::kFp16}) {
    const FlatConfig config = m_plus_adam(0, 1e-2);
    test::RunSetup setup{.config = config,
                         .options = {.statistics = StepStatistics::kOnDemand},
                         .encoding = {.format = WeightFormat::kBlockFp8, .fp8_scale_mode = mode}};
    OptimizerRun run(setup, {{.rows = 1, .cols = 128}});
    // The largest weight grows by the multiplicative rate, 0.01, the others have no gradient.
    run.encode(0, [](int64_t, int64_t c) { return c == 0 ? 1.5f : 0.01f * float(c); });
    test::fill_tensor(run.gradient(), [](int64_t, int64_t c) { return c == 0 ? -1.0f : 0.0f; });
    const UpdateStatistics s = step_with_statistics(run, 1).front();
    if (mode == Fp8ScaleMode::kPow2) {
      EXPECT_EQ(s.dragged, 0);
      EXPECT_EQ(s.drag_log2, 0);
    } else {
      EXPECT_GT(s.dragged, 100);
      // FP16 has 11 bits: the scale follows the maximum to 2^-11.
      EXPECT_NEAR(s.drag_log2 / double(s.dragged), std::log2(1.51 / 1.5),
                  2 * std::log2(1 + 0x1p-10));
    }
  }
}

TEST(UpdateStatistics, BucketsCoverEveryMagnitude) {
  EXPECT_EQ(int(bucket_edges().size()), kMagnitudeBuckets - 1);
  EXPECT_EQ(magnitude_bucket(0.0f), 0);
  EXPECT_EQ(magnitude_bucket(-0.0f), 0);
  EXPECT_EQ(magnitude_bucket(0x1p-149f), 1);
  EXPECT_EQ(magnitude_bucket(0x1.fffffep-17f), 1);
  EXPECT_EQ(magnitude_bucket(-0x1p-16f), 2);
  EXPECT_EQ(magnitude_bucket(0x1.fffffep-15f), 2);
  EXPECT_EQ(magnitude_bucket(0x1p-14f), 3);
  EXPECT_EQ(magnitude_bucket(3.99f), kMagnitudeBuckets - 2);
  EXPECT_EQ(magnitude_bucket(4.0f), kMagnitudeBuckets - 1);
  EXPECT_EQ(magnitude_bucket(INFINITY), kMagnitudeBuckets - 1);
}

}  // namespace
}  // namespace mpt
