// Update statistics: they agree with the step, change nothing, and separate the branches; sums of
// updates agree with a second computation.
#include <numeric>

#include <gtest/gtest.h>

#include "optim/combinations.h"
#include "optim/reference_rule.h"
#include "optim/update/kept_weight.h"
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

// The outcome for the weights, from their values before and after the step.
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
  for (const Combination& combination : test::tested_combinations()) {
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
      EXPECT_LT(s.flipped(), 0.2) << "weights that were dragged did not flip";
      // FP16 has 11 bits: the scale follows the maximum to 2^-11.
      EXPECT_NEAR(s.drag_log2 / double(s.dragged), std::log2(1.51 / 1.5),
                  2 * std::log2(1 + 0x1p-10));
    }
  }
}

// --- sizes of updates ------------------------------------------------------------------------

// A second computation of the sums, by docs/numerics.md.
struct ExpectedSums {
  long double weight_squares = 0, asked_squares[kBranches] = {};
  long double squares = 0, products = 0, known_squares = 0, known_products = 0;
  int64_t moved = 0;
};

// The keys of only one branch.
FlatConfig only(FlatConfig config, Branch branch) {
  if (branch == Branch::kAdditive) config.lr_multiplicative = 0;
  if (branch == Branch::kMultiplicative) config.lr_additive = 0;
  return config;
}

// The second step of one tensor with FP32 states, with statistics.
class SizedStep {
 public:
  SizedStep(const FlatConfig& config, const WeightEncoding& encoding)
      : config_(config), run_(setup(config, encoding), {{.rows = 5, .cols = 277}}) {
    test::Draws draws(3);
    run_.encode(
        0, [&](int64_t, int64_t c) { return c % 11 == 3 ? 0.0f : draws.signed_binades(-9, 1); });
    run_.optimizer().weights_initialized();
    fill_gradient(draws);
    run_.step(1);
    before_ = run_.decoded(0);
    known_before_ = known(before_);
    for (size_t i = 0; i < before_.size(); ++i) states_.push_back(state_of(i));
    fill_gradient(draws);
    found_ = run_.optimizer().step_with_statistics({.t = 2}).front();
    after_ = run_.decoded(0);
    known_after_ = known(after_);
  }

  [[nodiscard]] const UpdateStatistics& found() const { return found_; }
  [[nodiscard]] bool has_residuals() const {
    return residual_of(config_.weight_rounding).has_value();
  }
  [[nodiscard]] ExpectedSums expected() const {
    ExpectedSums sums;
    for (size_t i = 0; i < before_.size(); ++i) {
      for (int b = 0; b < found_.branches; ++b) {
        const long double d = asked(i, Branch(b));
        sums.asked_squares[b] += d * d;
      }
      const long double w = before_[i], d = asked(i, Branch::kBoth), e = after_[i] - w;
      const long double known = (long double)known_after_[i] - known_before_[i];
      sums.weight_squares += w * w;
      sums.squares += e * e;
      sums.products += d * e;
      sums.known_squares += known * known;
      sums.known_products += d * known;
      sums.moved += after_[i] != before_[i];
    }
    return sums;
  }

 private:
  static test::RunSetup setup(const FlatConfig& config, const WeightEncoding& encoding) {
    return {.config = config,
            .options = {.state = Format::kF32, .statistics = StepStatistics::kOnDemand},
            .encoding = encoding};
  }
  void fill_gradient(test::Draws& draws) {
    gradient_.clear();
    run_.fill_gradient(0, [&](int64_t, int64_t c) {
      gradient_.push_back(c % 13 == 5 ? 0.0f : draws.signed_binades(-12, -2));
      return gradient_.back();
    });
  }
  [[nodiscard]] test::ReferenceState state_of(size_t i) const {
    const auto read = [&](const char* name) {
      const Tensor state = run_.state(name);
      return state.as<float>()[int64_t(i) / state.cols * state.stride + int64_t(i) % state.cols];
    };
    return {read("m/w0"), read("v/w0"), config_.rule == "m_plus_adam" ? read("v_e/w0") : 0.0f};
  }
  // Returns weights with their residuals.
  [[nodiscard]] std::vector<double> known(const std::vector<float>& w) const {
    std::vector<double> exact(w.begin(), w.end());
    if (!has_residuals()) return exact;
    const Tensor kept =
        run_.state(fmt::format("{}/w0", residual_of(config_.weight_rounding)->name));
    for (size_t i = 0; i < w.size(); ++i) {
      const int64_t at = int64_t(i) / kept.cols * kept.stride + int64_t(i) % kept.cols;
      switch (config_.weight_rounding) {
        case WeightRounding::kKahan:
          exact[i] += double(to_float(kept.as<bf16>()[at]));
          break;
        case WeightRounding::kRemainder:
          exact[i] = Remainder::exact(w[i], kept.as<int16_t>()[at]);
          break;
        case WeightRounding::kUlpResidual:
          exact[i] = UlpResidual::exact(w[i], kept.as<int8_t>()[at]);
          break;
        default:
          exact[i] = kept.as<float>()[at];
      }
    }
    return exact;
  }
  // Returns the change of weight i that a branch requests.
  [[nodiscard]] long double asked(size_t i, Branch branch) const {
    const StepScalars second{.t = 2};
    const FlatConfig keys = only(config_, branch);
    const test::ReferenceRule rule{keys, second, {}};
    test::ReferenceState state = states_[i];
    const float w = before_[i], x = float(known_before_[i]), g = gradient_[i];
    if (config_.weight_rounding != WeightRounding::kKahan)
      return (long double)rule.next(x, g, state) - x;
    const float y = float(known_before_[i] - w) + rule.change(w, g, state);
    const float next = rounded_to<bf16>(w + y);
    return (long double)next + ((w - next) + y) - known_before_[i];
  }

  FlatConfig config_;
  OptimizerRun run_;
  std::vector<float> gradient_, before_, after_;
  std::vector<double> known_before_, known_after_;
  std::vector<test::ReferenceState> states_;
  UpdateStatistics found_;
};

// 1,385 terms, each of which and each of whose sums is rounded; for dot products of either sign by
// Cauchy-Schwarz.
constexpr double kOfSums = 1400 * 0x1p-53;

void expect_sums(const SizedStep& step) {
  const UpdateStatistics& s = step.found();
  const ExpectedSums e = step.expected();
  const auto near = [](double found, long double expected, long double most) {
    EXPECT_NEAR(found, double(expected), kOfSums * double(most));
  };
  near(s.sums.weight_squares, e.weight_squares, e.weight_squares);
  EXPECT_GT(e.asked_squares[0], 0);
  for (int b = 0; b < kBranches; ++b)
    near(s.sums.asked_squares[b], e.asked_squares[b], e.asked_squares[b]);
  near(s.sums.stored.squares, e.squares, e.squares);
  near(s.sums.stored.products, e.products, std::sqrt(e.squares * e.asked_squares[0]));
  EXPECT_EQ(s.has_residuals, step.has_residuals());
  EXPECT_NEAR(s.flipped(), double(e.moved - s.dragged) / 1385, 1e-15);
  if (!step.has_residuals()) return;
  near(s.sums.with_residuals.squares, e.known_squares, e.known_squares);
  near(s.sums.with_residuals.products, e.known_products,
       std::sqrt(e.known_squares * e.asked_squares[0]));
}

TEST(UpdateStatistics, SumsAreThoseOfASecondComputation) {
  Json adamw = test::adamw_keys();
  adamw["lr_additive"] = 3e-3;
  for (const FlatConfig& rule : {test::optimizer_config(adamw), m_plus_adam(3e-3, 5e-3)})
    for (const FlatConfig& config : test::with_roundings(rule))
      for (const WeightEncoding& encoding : test::every_encoding()) {
        // Operations of per_op round to BF16, which the second computation does not.
        if (!test::goes_together(config, encoding) || config.kahan_variant == KahanVariant::kPerOp)
          continue;
        SCOPED_TRACE(fmt::format("{} {} {} {}", config.rule, name_of(config.weight_rounding),
                                 name_of(config.error_feedback), name_of(encoding.format)));
        expect_sums(SizedStep(config, encoding));
      }
}

TEST(UpdateStatistics, OfFp32NothingIsLost) {
  const SizedStep step(m_plus_adam(3e-3, 5e-3), {.format = WeightFormat::kF32});
  const UpdateStatistics& s = step.found();
  EXPECT_EQ(s.edq_ratio(s.sums.stored), 1.0);
  EXPECT_EQ(s.rms(s.sums.stored), s.asked_rms(Branch::kBoth));
  EXPECT_GT(s.asked_rms(Branch::kAdditive), 0.0);
  EXPECT_GT(s.asked_rms(Branch::kMultiplicative), 0.0);
}

// 40,000 weights of 1.25 that should change by less than half a step of BF16, 2^-8.
UpdateStatistics of_small_updates(double rate, WeightRounding rounding) {
  Json keys = test::adamw_keys();
  keys["lr_additive"] = rate;
  keys["weight_decay_additive"] = 0;
  FlatConfig config = test::optimizer_config(keys);
  config.weight_rounding = rounding;
  test::RunSetup setup{.config = config,
                       .options = {.statistics = StepStatistics::kOnDemand},
                       .encoding = {.format = WeightFormat::kBF16}};
  OptimizerRun run(setup, {{.rows = 40, .cols = 1000}});
  run.encode(0, [](int64_t, int64_t) { return 1.25f; });
  test::fill_tensor(run.gradient(), [](int64_t, int64_t) { return 0.5f; });
  return step_with_statistics(run, 1).front();
}

TEST(UpdateStatistics, OfUpdatesBelowHalfAStepNothingIsLeft) {
  const UpdateStatistics s = of_small_updates(1e-4, WeightRounding::kNearest);
  EXPECT_EQ(s.edq_ratio(s.sums.stored), 0.0);
  EXPECT_EQ(s.rms(s.sums.stored), 0.0);
  EXPECT_EQ(s.flipped(), 0.0);
  EXPECT_EQ(s.weight_rms(), 1.25);
  EXPECT_NEAR(s.asked_rms(Branch::kBoth), 1e-4, 0x1p-24);  // half an ulp of FP32 at 1.25
}

// A weight moves by one step of 2^-7 with probability p = 2^-4, and by 0 otherwise: the mean of the
// ratio is 1, its standard deviation sqrt((1 - p) / (p n)) = 0.02.
TEST(UpdateStatistics, StochasticRoundingLosesNothingOnAverage) {
  const UpdateStatistics s = of_small_updates(0x1p-11, WeightRounding::kStochastic);
  EXPECT_NEAR(*s.edq_ratio(s.sums.stored), 1.0, 5 * 0.02);
  EXPECT_NEAR(s.flipped(), 0x1p-4, 5 * 0.02 * 0x1p-4);
  EXPECT_EQ(s.rms(s.sums.stored), 0x1p-7 * std::sqrt(s.flipped()));
}

// The stored weight stays; its residual absorbs the update, to 8 bits.
TEST(UpdateStatistics, ResidualsKeepWhatWeightsLose) {
  const UpdateStatistics s = of_small_updates(1e-4, WeightRounding::kKahan);
  EXPECT_TRUE(s.has_residuals);
  EXPECT_EQ(s.edq_ratio(s.sums.stored), 0.0);
  EXPECT_NEAR(*s.edq_ratio(s.sums.with_residuals), 1.0, 0x1p-8);
  EXPECT_NEAR(s.rms(s.sums.with_residuals), s.asked_rms(Branch::kBoth), 1e-4 * 0x1p-8);
}

TEST(UpdateStatistics, HaveNoRatioWithoutAnUpdate) {
  const UpdateStatistics s = of_small_updates(0, WeightRounding::kNearest);
  EXPECT_FALSE(s.edq_ratio(s.sums.stored).has_value());
  EXPECT_EQ(s.asked_rms(Branch::kBoth), 0.0);
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
