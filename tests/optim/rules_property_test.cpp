// Properties of the update rules on random weights, gradients and options (docs/numerics.md
// "Properties", P1-P7), and the rules against a literal second version of their formulas.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "optim/optimizer_fixture.h"
#include "optim/reference_rule.h"
#include "support/draws.h"

namespace mpt {
namespace {

using test::Draws;
using test::FlatConfig;

constexpr TensorScalars kMatrix{};

// An M+Adam without decay and limits on weights.
FlatConfig plain_config() {
  FlatConfig config;
  config.rule = "m_plus_adam";
  config.lr_additive = 1e-3;
  config.lr_multiplicative = 1e-3;
  config.beta2 = 0.95;
  config.weight_decay_additive = 0;
  return config;
}

struct Moments {
  float values[3] = {};
  bool operator==(const Moments&) const = default;
};

struct Update {
  FlatConfig config;
  TensorScalars tensor = kMatrix;
  int64_t t = 1;

  [[nodiscard]] StepScalars step() const { return {.t = t}; }
  float operator()(float w, float g, Moments& s) const {
    const OptimizerConfig typed = config;
    std::vector<float> table(size_t(table_size(typed.rule)));
    fill_table(typed.rule, step(), table);
    TensorScalars scalars = tensor;
    scalars.table = table.data();
    float next = 0;
    test::with_step(typed, step(), scalars,
                    [&](const auto& rule) { next = next_weight<EmaOnce>(rule, w, g, s.values); });
    return next;
  }
  float operator()(float w, float g) const {
    Moments fresh;
    return (*this)(w, g, fresh);
  }
};

double ulp(float x) {
  const float size = std::fabs(x);
  return double(std::nextafter(size, INFINITY)) - double(size);
}

// Returns any combination of options, including limits on weights and decays.
FlatConfig random_config(Draws& draws) {
  FlatConfig config;
  constexpr const char* kRules[] = {"adamw",       "additive_twin", "lion",
                                    "m_plus_adam", "m_plus_adam",   "m_plus_adam"};
  config.rule = kRules[draws.index(6)];
  config.gradient_ratio = draws.coin() ? 0.5 : draws.uniform(0, 2);
  config.relative_step = draws.coin() ? RelativeStep::kOverWeight : RelativeStep::kDirect;
  config.lr_additive = draws.coin() ? std::exp2(draws.uniform(-14, -4)) : 0.0;
  config.lr_multiplicative = draws.coin() ? std::exp2(draws.uniform(-14, -2)) : 0.0;
  config.beta1 = draws.coin() ? 0.9 : draws.uniform(0, 0.999);
  config.beta2 = draws.coin() ? 0.98 : draws.uniform(0, 0.9999);
  config.eps = std::exp2(draws.uniform(-40, -10));
  config.tau = std::exp2(draws.uniform(-30, -3));
  config.bias_correction = draws.coin();
  config.weight_decay_additive = draws.coin() ? draws.uniform(0, 1) : 0.0;
  config.weight_decay_norms = draws.coin();
  config.clip_multiplicative_direction = draws.coin() ? draws.uniform(0.1, 10) : 0.0;
  config.clip_relative_step = draws.coin() ? draws.uniform(0.01, 1) : 0.0;
  config.clip_exponent_step = draws.coin() ? draws.uniform(0.01, 2) : 0.0;
  config.clip_weight = draws.coin() ? std::exp2(draws.uniform(-6, 4)) : 0.0;
  config.weight_decay_multiplicative = draws.coin() ? draws.uniform(0, 1) : 0.0;
  config.weight_decay_multiplicative_mode =
      draws.coin() ? MultiplicativeDecay::kScale : MultiplicativeDecay::kExponent;
  return config;
}

TensorScalars random_tensor(Draws& draws) {
  return {.rank = draws.coin() ? 1 : 2,
          .weight_unit = draws.coin() ? 1.0f : float(draws.uniform(0.01, 2))};
}

TEST(RuleProperties, AgreeWithALiteralVersionOfTheFormulas) {
  Draws draws(11);
  for (int trial = 0; trial < 4000; ++trial) {
    Update update{random_config(draws), random_tensor(draws)};
    Moments state;
    test::ReferenceState reference;
    float w = draws.signed_binades(-30, 6), expected = w;
    for (update.t = 1; update.t <= 5; ++update.t) {
      const float g = draws.index(8) == 0 ? 0.0f : draws.signed_binades(-40, 4);
      const StepScalars step = update.step();
      w = update(w, g, state);
      expected =
          test::ReferenceRule{update.config, step, update.tensor}.next(expected, g, reference);
      ASSERT_EQ(bits_of(w), bits_of(expected)) << "trial " << trial << " t " << update.t;
      ASSERT_EQ(bits_of(state.values[0]), bits_of(reference.m));
      ASSERT_EQ(bits_of(state.values[1]), bits_of(reference.v));
      ASSERT_EQ(bits_of(state.values[2]), bits_of(reference.v_e));
    }
  }
}

// P1: a first step without decay never goes uphill, and moves wherever it exceeds the resolution of
// fp32.
TEST(RuleProperties, P1Downhill) {
  Draws draws(1);
  int moved = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    Update update{plain_config()};
    update.config.bias_correction = draws.coin();
    update.config.clip_relative_step = draws.coin() ? 0.75 : 0;
    update.config.clip_exponent_step = draws.coin() ? 0.5 : 0;
    update.config.clip_multiplicative_direction = draws.coin() ? 10 : 0;
    const float w = draws.signed_binades(-30, 6), g = draws.signed_binades(-30, 6);
    const double change = double(update(w, g)) - double(w);
    ASSERT_LE(change * double(g), 0) << w << " " << g;
    // Only for the additive branch; without correction |m / sqrt(v)| is (1 - b1) / sqrt(1 - b2).
    const double ratio = update.config.bias_correction ? 1.0 : 0.1 / std::sqrt(0.05);
    const double root =
        update.config.bias_correction ? std::fabs(g) : std::sqrt(0.05) * std::fabs(g);
    const double additive = 1e-3 * ratio * root / (root + 1e-8);
    if (additive > ulp(w)) {
      ASSERT_NE(change, 0) << w << " " << g;
      ++moved;
    }
  }
  EXPECT_GT(moved, 10000);
}

// P2: negating weight, gradient and first moment negates the result.
TEST(RuleProperties, P2Mirror) {
  Draws draws(2);
  for (int trial = 0; trial < 20000; ++trial) {
    const Update update{random_config(draws), random_tensor(draws), 1 + draws.index(50)};
    const float w = draws.signed_binades(-30, 6), g = draws.signed_binades(-30, 4);
    Moments state{{draws.signed_binades(-20, 0), std::fabs(draws.signed_binades(-30, 0)),
                   std::fabs(draws.signed_binades(-30, 0))}};
    Moments mirrored{{-state.values[0], state.values[1], state.values[2]}};
    const float next = update(w, g, state), opposite = update(-w, -g, mirrored);
    if (next == 0)
      ASSERT_EQ(opposite, 0);
    else
      ASSERT_EQ(bits_of(opposite), bits_of(-next)) << w << " " << g;
    ASSERT_EQ(mirrored.values[0], -state.values[0]);
    ASSERT_EQ(mirrored.values[1], state.values[1]);
    ASSERT_EQ(mirrored.values[2], state.values[2]);
  }
}

// P3: the multiplicative branch by itself keeps the sign and stays within the relative clip, after
// rounding.
TEST(RuleProperties, P3MultiplicativeBranchKeepsTheSign) {
  Draws draws(3);
  double least = 1, most = 1;
  for (int trial = 0; trial < 20000; ++trial) {
    Update update{plain_config()};
    update.config.lr_additive = 0;
    update.config.lr_multiplicative = std::exp2(draws.uniform(-14, 4));
    const float w = draws.signed_binades(-120, 20), g = draws.signed_binades(-30, 20);
    const float next = update(w, g);
    ASSERT_GT(double(next) * double(w), 0) << w << " " << g;
    ASSERT_GE(std::fabs(next), 0.25f * std::fabs(w)) << w << " " << g;
    ASSERT_LE(std::fabs(next), 1.75f * std::fabs(w)) << w << " " << g;
    least = std::min(least, double(next) / double(w));
    most = std::max(most, double(next) / double(w));
  }
  EXPECT_LT(least, 0.2501) << "the clip was never reached";
  EXPECT_GT(most, 1.7499) << "the clip was never reached";
}

// P4: a weight of 0 moves only by the additive branch; its v_e only decays.
TEST(RuleProperties, P4ZeroWeight) {
  Draws draws(4);
  for (int trial = 0; trial < 5000; ++trial) {
    Update update{random_config(draws)};
    update.config.rule = "m_plus_adam";
    update.config.clip_weight = 0;
    Update adamw = update;
    adamw.config.rule = "adamw";
    const float g = draws.signed_binades(-30, 6), v_e = std::fabs(draws.signed_binades(-40, 0));
    Moments state{{0, 0, v_e}}, plain;
    ASSERT_EQ(bits_of(update(0.0f, g, state)), bits_of(adamw(0.0f, g, plain)));
    ASSERT_EQ(bits_of(state.values[2]), bits_of(float(update.config.beta2) * v_e));
  }
}

TEST(RuleProperties, P4PaddingStaysPlusZero) {
  Draws draws(5);
  for (int trial = 0; trial < 2000; ++trial) {
    const Update update{random_config(draws), random_tensor(draws), 1 + draws.index(1000)};
    Moments state;
    ASSERT_EQ(bits_of(update(0.0f, 0.0f, state)), 0u);
    for (const float s : state.values) ASSERT_EQ(bits_of(s), 0u);
  }
}

// 399 small gradients and a large one: the sequence that drives |n| to its bound. Returns the last
// weight.
float weight_after_spike(double beta2, double g_max) {
  Draws draws(6);
  Update update{plain_config()};
  update.config.beta2 = beta2;
  update.config.eps = 1e-30;
  update.config.lr_additive = 0;
  update.config.lr_multiplicative = 1e-6;
  update.config.clip_multiplicative_direction = g_max;
  Moments state;
  float w = 1.0f;
  for (update.t = 1; update.t <= 400; ++update.t)
    w = update(w, update.t == 400 ? 1e3f : std::fabs(draws.bell(1e-3)), state);
  return w;
}

// P5: |n| <= sqrt((1 - b2^t) / (1 - b2)), so a limit of 10 has no effect for b2 <= .99.
TEST(RuleProperties, P5DirectionIsBounded) {
  for (const double beta2 : {0.95, 0.98, 0.99}) {
    const float unlimited = weight_after_spike(beta2, 0);
    EXPECT_EQ(bits_of(weight_after_spike(beta2, 10)), bits_of(unlimited)) << beta2;
    const double bound = std::sqrt((1 - std::pow(beta2, 400)) / (1 - beta2));
    EXPECT_EQ(bits_of(weight_after_spike(beta2, 1.0001 * bound)), bits_of(unlimited)) << beta2;
    EXPECT_NE(bits_of(weight_after_spike(beta2, 0.98 * bound)), bits_of(unlimited)) << beta2;
  }
  EXPECT_NE(bits_of(weight_after_spike(0.999, 10)), bits_of(weight_after_spike(0.999, 0)));
}

// P6: the size of the step is lr_m |n| for any weight; |n| is 1 in a first step far above eps.
TEST(RuleProperties, P6StepSizeDoesNotDependOnTheWeight) {
  Draws draws(7);
  for (int trial = 0; trial < 20000; ++trial) {
    Update update{plain_config()};
    update.config.lr_additive = 0;
    update.config.eps = 1e-20;
    const double lr = update.config.lr_multiplicative;
    const float w = draws.signed_binades(-20, 6), g = draws.signed_binades(-10, 6);
    const double change = double(update(w, g)) - double(w);
    const double expected =
        std::min(lr, (change * double(w) > 0 ? 0.75 : 0.75 - 1e-6) * std::fabs(w));
    // Five roundings of the factor, one of the weight.
    EXPECT_NEAR(std::fabs(change), expected, 5 * 0x1p-23 * expected + ulp(w)) << w << " " << g;
    EXPECT_LT(change * double(g), 0.0 + (expected < ulp(w) ? 1e-300 : 0)) << w << " " << g;
  }
}

TEST(RuleProperties, P6BelowTauTheStepShrinksWithTheWeight) {
  Update update{plain_config()};
  update.config.lr_additive = 0;
  update.config.eps = 1e-20;
  update.config.tau = 0.5;
  EXPECT_NEAR(update(0.25f, 1.0f), 0.25f - 0.5 * 1e-3, ulp(0.25f));
  EXPECT_NEAR(update(0.125f, 1.0f), 0.125f - 0.25 * 1e-3, ulp(0.125f));
}

// P7: M+Adam with a multiplicative rate of 0 is AdamW, bit for bit, in every format.
TEST(RuleProperties, P7WithoutMultiplicativeRateIsAdamW) {
  for (const DType weights : {DType::kF32, DType::kBF16}) {
    for (const DType state : {DType::kF32, DType::kBF16}) {
      const test::Formats formats{weights, state, DType::kBF16};
      const std::vector<test::TargetShape> shapes{{.rows = 3, .cols = 301},
                                                  {.rows = 1, .cols = 77, .rank = 1}};
      Json keys = test::m_plus_adam_keys();
      keys["lr_multiplicative"] = 0.0;
      test::OptimizerRun ours(test::optimizer_config(keys), formats, shapes);
      test::OptimizerRun adamw(test::optimizer_config(test::adamw_keys()), formats, shapes);
      Draws draws(8);
      for (size_t i = 0; i < shapes.size(); ++i) {
        test::fill_tensor(ours.weights(i),
                          [&](int64_t, int64_t) { return draws.signed_binades(-12, 2); });
        memcpy(adamw.weights(i).data, ours.weights(i).data, size_t(ours.weights(i).bytes()));
      }
      for (int64_t t = 1; t <= 10; ++t) {
        for (size_t i = 0; i < shapes.size(); ++i) {
          test::fill_tensor(ours.gradient(i),
                            [&](int64_t, int64_t) { return draws.signed_binades(-20, 0); });
          memcpy(adamw.gradient(i).data, ours.gradient(i).data, size_t(ours.gradient(i).bytes()));
        }
        ours.step(t, 0.7f);
        adamw.step(t, 0.7f);
        for (size_t i = 0; i < shapes.size(); ++i) {
          ASSERT_EQ(test::bits_of_tensor(ours.weights(i)), test::bits_of_tensor(adamw.weights(i)));
          for (const char* name : {"m/w", "v/w"}) {
            const std::string state_name = fmt::format("{}{}", name, i);
            ASSERT_EQ(test::bits_of_tensor(ours.state(state_name)),
                      test::bits_of_tensor(adamw.state(state_name)));
          }
        }
      }
    }
  }
}

// One option, with a value at which it must have no effect and one at which it must act.
struct OptionCase {
  const char* name;
  void (*idle)(FlatConfig&);
  void (*acting)(FlatConfig&);
};

TEST(RuleProperties, EveryOptionIsIdentityWhenOffAndActsWhenOn) {
  const std::array kOptions{
      OptionCase{"clip_multiplicative_direction",
                 [](auto& c) { c.clip_multiplicative_direction = 1e30; },
                 [](auto& c) { c.clip_multiplicative_direction = 0.5; }},
      OptionCase{"clip_relative_step", [](auto& c) { c.clip_relative_step = 1; },
                 [](auto& c) { c.clip_relative_step = 1e-4; }},
      OptionCase{"clip_exponent_step", [](auto& c) { c.clip_exponent_step = 64; },
                 [](auto& c) { c.clip_exponent_step = 1e-4; }},
      OptionCase{"clip_weight", [](auto& c) { c.clip_weight = 1e30; },
                 [](auto& c) { c.clip_weight = 0.25; }},
      OptionCase{"clip_weight in RMS",
                 [](auto& c) {
                   c.clip_weight = 1e30;
                   c.clip_weight_mode = ClipWeightMode::kInitRms;
                 },
                 [](auto& c) {
                   c.clip_weight = 0.25;
                   c.clip_weight_mode = ClipWeightMode::kInitRms;
                 }},
      OptionCase{"weight_decay_additive", [](auto& c) { c.weight_decay_additive = 0; },
                 [](auto& c) { c.weight_decay_additive = 0.1; }},
      OptionCase{"weight_decay_multiplicative, scale",
                 [](auto& c) { c.weight_decay_multiplicative = 0; },
                 [](auto& c) { c.weight_decay_multiplicative = 0.1; }},
      OptionCase{
          "weight_decay_multiplicative, exponent",
          [](auto& c) { c.weight_decay_multiplicative_mode = MultiplicativeDecay::kExponent; },
          [](auto& c) {
            c.weight_decay_multiplicative_mode = MultiplicativeDecay::kExponent;
            c.weight_decay_multiplicative = 0.1;
          }},
      OptionCase{"weight_decay_norms", [](auto& c) { c.weight_decay_norms = true; },
                 [](auto& c) { c.bias_correction = false; }},
      OptionCase{"tau", [](auto& c) { c.tau = 1e-30; }, [](auto& c) { c.tau = 16; }},
  };
  FlatConfig off = plain_config();
  off.clip_multiplicative_direction = off.clip_relative_step = 0;
  for (const OptionCase& option : kOptions) {
    Draws draws(9);
    int acted = 0;
    constexpr int kTrials = 500;
    for (int trial = 0; trial < kTrials; ++trial) {
      const float w = draws.signed_binades(-1, 2), g = draws.signed_binades(-4, 4);
      Update plain{off}, idle{off}, acting{off};
      option.idle(idle.config);
      option.acting(acting.config);
      Moments a, b, c;
      const float expected = plain(w, g, a);
      ASSERT_EQ(bits_of(idle(w, g, b)), bits_of(expected)) << option.name;
      ASSERT_EQ(a, b) << option.name;
      acted += bits_of(acting(w, g, c)) != bits_of(expected);
    }
    EXPECT_GT(acted, kTrials / 2) << option.name;
  }
}

// The descent direction of the multiplicative branch, by hand: rho is unsigned, so a negative
// weight grows in size against a positive gradient.
TEST(RuleProperties, NegativeWeightsMoveDownhill) {
  Update update{plain_config()};
  update.config.lr_additive = 0;
  EXPECT_LT(update(-0.5f, 1.0f), -0.5f);
  EXPECT_GT(update(-0.5f, -1.0f), -0.5f);
  EXPECT_LT(update(0.5f, 1.0f), 0.5f);
  EXPECT_GT(update(0.5f, -1.0f), 0.5f);
}

TEST(RuleProperties, ExponentDecayDrawsMagnitudesToOne) {
  Update update{plain_config()};
  update.config.lr_additive = 0;
  update.config.weight_decay_multiplicative = 0.1;
  update.config.weight_decay_multiplicative_mode = MultiplicativeDecay::kExponent;
  EXPECT_GT(update(0.01f, 0.0f), 0.01f);
  EXPECT_LT(update(100.0f, 0.0f), 100.0f);
  EXPECT_EQ(update(0.75f, 0.0f), 0.75f);  // exponent 0
  update.config.weight_decay_multiplicative_mode = MultiplicativeDecay::kScale;
  EXPECT_LT(update(0.01f, 0.0f), 0.01f);
  EXPECT_LT(update(100.0f, 0.0f), 100.0f);
}

TEST(RuleProperties, ExponentOfEqualsFrexp) {
  for (uint32_t bits = 1; bits < 0x7F800000u; bits += 0x3FFFu) {
    int expected = 0;
    std::ignore = std::frexp(float_of(bits), &expected);
    ASSERT_EQ(ExponentDecay::exponent_of(float_of(bits)), expected) << bits;
    ASSERT_EQ(ExponentDecay::exponent_of(-float_of(bits)), expected) << bits;
  }
  for (int bit = 0; bit < 31;
       ++bit) {  // every power of two among the subnormals, and the values around it
    for (const uint32_t bits : {(1u << bit) - 1, 1u << bit, (1u << bit) + 1}) {
      if (bits == 0 || bits >= 0x7F800000u) continue;
      int expected = 0;
      std::ignore = std::frexp(float_of(bits), &expected);
      ASSERT_EQ(ExponentDecay::exponent_of(float_of(bits)), expected) << bits;
    }
  }
  EXPECT_EQ(ExponentDecay::exponent_of(0.0f), 0);
  EXPECT_EQ(ExponentDecay::exponent_of(-0.0f), 0);
  EXPECT_EQ(ExponentDecay::exponent_of(float_of(1)), ExponentDecay::kLowest);
  EXPECT_EQ(ExponentDecay::exponent_of(std::numeric_limits<float>::max()), ExponentDecay::kHighest);
}

// For a NaN weight, the table is not read beyond its end.
TEST(RuleProperties, ExponentOfStaysInTheTable) {
  for (const float w : {INFINITY, -INFINITY, NAN, float_of(0x7FFFFFFF), float_of(0xFFFFFFFF)}) {
    EXPECT_GE(ExponentDecay::exponent_of(w), ExponentDecay::kLowest);
    EXPECT_LE(ExponentDecay::exponent_of(w), ExponentDecay::kHighest);
  }
}

// 2^x and 2^x - 1 are the long double values rounded once.
TEST(RuleProperties, ExponentDecayTable) {
  for (const double lr : {1e-4, 1e-2, 0.3}) {
    for (const double wd : {0.1, 0.037, 1.0}) {
      FlatConfig config = plain_config();
      config.weight_decay_multiplicative = wd;
      config.weight_decay_multiplicative_mode = MultiplicativeDecay::kExponent;
      config.lr_multiplicative = lr;
      const RuleConfig rule = OptimizerConfig(config).rule;
      std::vector<float> table(size_t(table_size(rule)));
      fill_table(rule, {.t = 1}, table);
      ASSERT_EQ(table.size(), 2 * size_t(ExponentDecay::kEntries));
      for (int e = ExponentDecay::kLowest; e <= ExponentDecay::kHighest; ++e) {
        const long double x = -(long double)(double(float(lr)) * wd) * e;
        const auto entry = size_t(e - ExponentDecay::kLowest);
        EXPECT_EQ(table[entry], float(std::exp2(x))) << lr << " " << wd << " " << e;
        EXPECT_EQ(table[entry + ExponentDecay::kEntries],
                  float(std::expm1(x * std::numbers::ln2_v<long double>)))
            << lr << " " << wd << " " << e;
      }
    }
  }
}

}  // namespace
}  // namespace mpt
