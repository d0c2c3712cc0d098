// The update rules against golden/optimizer_golden.json, bit for bit: through the Optimizer and
// element by element.
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "optim/optimizer_fixture.h"

namespace mpt {
namespace {

using test::bits_of_tensor;
using test::fill_tensor;
using test::FlatConfig;
using test::optimizer_config;
using test::OptimizerRun;

const Json& golden() {
  static const Json content = [] {
    std::ifstream file(MPT_SOURCE_DIR "/tests/golden/optimizer_golden.json");
    return Json::parse(file);
  }();
  return content;
}

uint32_t hex(const Json& text) {
  return uint32_t(std::stoul(text.get<std::string>(), nullptr, 16));
}

// 8 digits are fp32, 4 are bf16.
float value_of_hex(const Json& text) {
  return text.get<std::string>().size() == 4 ? to_float(bf16{uint16_t(hex(text))})
                                             : float_of(hex(text));
}

DType dtype_of_name(const Json& name) { return *enum_from_name<DType>(name.get<std::string>()); }

// The file has Madam's bound on weights as a number, 0 for none; configs have it in multiples of a
// unit.
FlatConfig config_of(const Json& golden_case) {
  Json keys = golden_case["options"];
  keys["rule"] = golden_case["rule"];
  keys["weight_rounding"] = golden_case["writeback"];
  if (keys.contains("w_max")) keys["p_scale"] = keys["w_max"] == 0.0 ? 1e30 : 1.0;
  keys.erase("w_max");
  return optimizer_config(keys);
}
float weight_unit(const Json& golden_case) {
  const double w_max = golden_case["options"].value("w_max", 0.0);
  return w_max > 0 ? float(w_max) : 1.0f;
}

StateUpdate state_update(const Json& golden_case) {
  return *enum_from_name<StateUpdate>(golden_case["state_update"].get<std::string>());
}

std::string state_key(std::string_view name) { return name == "v_e" ? "ve" : std::string(name); }

void expect_all(const Tensor& tensor, const Json& expected, const std::string& what) {
  for (const uint32_t bits : bits_of_tensor(tensor)) ASSERT_EQ(bits, hex(expected)) << what;
}

// Every element of a matrix of partial units takes the steps of the case.
void run_through_optimizer(const Json& golden_case) {
  const FlatConfig config = config_of(golden_case);
  const Format state = test::format_of(dtype_of_name(golden_case["state_format"]));
  OptimizerRun run({.config = config,
                    .options = {.state = state, .state_update = state_update(golden_case)},
                    .encoding = test::encoding_of(dtype_of_name(golden_case["weight_format"])),
                    .gradient = dtype_of_name(golden_case["gradient_format"])},
                   {{.rows = 3, .cols = 131}});
  fill_tensor(run.weights(), [&](int64_t, int64_t) { return value_of_hex(golden_case["w0"]); });
  run.optimizer().weights_initialized();
  if (test::bounds_weights(config)) {
    run.state("init_rms").as<float>()[0] = weight_unit(golden_case);
    run.optimizer().states_loaded();
  }
  for (size_t i = 0; i < golden_case["steps"].size(); ++i) {
    fill_tensor(run.gradient(),
                [&](int64_t, int64_t) { return value_of_hex(golden_case["gradients"][i]); });
    run.step(int64_t(i) + 1);
    const Json& expected = golden_case["steps"][i];
    const std::string when = fmt::format(" at t = {}", i + 1);
    expect_all(run.weights(), expected["w"], "w" + when);
    for (const std::string& name : test::state_names(config))
      expect_all(run.state(name + "/w0"), expected[state_key(name)], name + when);
    if (const auto residual = residual_of(config.weight_rounding))
      expect_all(run.state(fmt::format("{}/w0", residual->name)), expected["c"], "c" + when);
  }
}

uint32_t stored_bits(DType dtype, float x) {
  return dtype == DType::kF32 ? bits_of(x) : bf16_nearest(x).bits;
}
float stored(DType dtype, float x) { return dtype == DType::kF32 ? x : rounded_to<bf16>(x); }

// One weight stored only in this test: the effect of a rule on w (and on the residual kept with it)
// and its states.
struct OneWeight {
  float w, c = 0;
  float state[3] = {};
  Remainder::Code remainder = 0;
  UlpResidual::Code ulp_residual = 0;
  float master = w;

  template <class Ema>
  void step(const FlatConfig& config, const StepScalars& step, TensorScalars tensor, float g) {
    const OptimizerConfig typed = config;
    std::vector<float> table(size_t(table_size(typed.rule)));
    fill_table(typed.rule, step, table);
    tensor.table = table.data();
    if (config.weight_rounding == WeightRounding::kKahan &&
        config.kahan_variant == KahanVariant::kPerOp)
      return set(AdamW::EagerKahan::at(keys_of<AdamW::Config>(typed.rule), step, tensor)
                     .next<Ema>(w, c, g, state));
    test::with_step(typed, step, tensor, [&]<class S>(const S& rule) {
      const auto exact = [&]<class Kept>(std::type_identity<Kept>, typename Kept::Code& code) {
        Kept::split(next_weight<Ema>(rule, Kept::exact(w, code), g, state), w, code);
      };
      switch (config.weight_rounding) {
        case WeightRounding::kKahan:
          return set(KahanFused<S>{rule}.template next<Ema>(w, c, g, state));
        case WeightRounding::kRemainder:
          return exact(std::type_identity<Remainder>{}, remainder);
        case WeightRounding::kUlpResidual:
          return exact(std::type_identity<UlpResidual>{}, ulp_residual);
        case WeightRounding::kMaster:
          return exact(std::type_identity<Fp32Copy>{}, master);
        case WeightRounding::kNearest:
        case WeightRounding::kStochastic:
          w = next_weight<Ema>(rule, w, g, state);
      }
    });
  }
  // Returns the error of storing w as `dtype` to the first moment.
  template <class Ema>
  void feed_back(const FlatConfig& config, const StepScalars& step, TensorScalars tensor,
                 DType dtype) {
    const OptimizerConfig typed = config;
    const float error = w - stored(dtype, w);
    with_rule(typed.rule, [&]<class R>(std::type_identity<R>, const typename R::Config& keys) {
      R::Steps::with(R::step_of(keys, tensor), [&]<class S>(std::type_identity<S>) {
        if constexpr (TakesErrors<S>)
          ErrorFeedback<S>::at(keys, step, tensor).template take<Ema>(error, state);
      });
    });
  }
  [[nodiscard]] uint32_t residual_bits(WeightRounding rounding) const {
    switch (rounding) {
      case WeightRounding::kRemainder:
        return uint16_t(remainder);
      case WeightRounding::kUlpResidual:
        return uint8_t(ulp_residual);
      case WeightRounding::kMaster:
        return bits_of(master);
      default:
        return bf16_nearest(c).bits;
    }
  }

 private:
  void set(const Compensated& next) {
    w = next.w;
    c = rounded_to<bf16>(next.c);
  }
};

void run_directly(const Json& golden_case) {
  const FlatConfig config = config_of(golden_case);
  const DType weights = dtype_of_name(golden_case["weight_format"]);
  const DType states = dtype_of_name(golden_case["state_format"]);
  OneWeight one{.w = value_of_hex(golden_case["w0"])};
  for (size_t i = 0; i < golden_case["steps"].size(); ++i) {
    const StepScalars step{.t = int64_t(i) + 1};
    const TensorScalars tensor{.rank = 2, .weight_unit = weight_unit(golden_case)};
    const float g = value_of_hex(golden_case["gradients"][i]);
    const auto advance = [&]<class Ema>(Ema) {
      one.step<Ema>(config, step, tensor, g);
      if (config.error_feedback == ErrorFeedbackMode::kMomentum)
        one.feed_back<Ema>(config, step, tensor, weights);
    };
    state_update(golden_case) == StateUpdate::kOnce ? advance(EmaOnce{}) : advance(EmaPerOp{});
    const Json& expected = golden_case["steps"][i];
    EXPECT_EQ(stored_bits(weights, one.w), hex(expected["w"])) << "t = " << step.t;
    if (expected.contains("w_before_rounding")) {
      EXPECT_EQ(bits_of(one.w), hex(expected["w_before_rounding"])) << "t = " << step.t;
    }
    if (expected.contains("c")) {
      EXPECT_EQ(one.residual_bits(config.weight_rounding), hex(expected["c"])) << "t = " << step.t;
    }
    const std::vector<std::string> names = test::state_names(config);
    for (size_t s = 0; s < names.size(); ++s)
      EXPECT_EQ(stored_bits(states, one.state[s]), hex(expected[state_key(names[s])]))
          << names[s] << " t = " << step.t;
    one.w = stored(weights, one.w);
    for (float& x : one.state) x = stored(states, x);
  }
}

TEST(RulesGolden, EveryCaseThroughTheOptimizer) {
  for (const Json& golden_case : golden()["cases"]) {
    SCOPED_TRACE(golden_case["name"]);
    run_through_optimizer(golden_case);
  }
}

TEST(RulesGolden, EveryCaseDirectly) {
  for (const Json& golden_case : golden()["cases"]) {
    SCOPED_TRACE(golden_case["name"]);
    run_directly(golden_case);
  }
}

// Every rule, write-back and way of updating states occurs.
TEST(RulesGolden, CasesOfEveryKind) {
  std::set<std::string> kinds;
  for (const Json& golden_case : golden()["cases"])
    for (const char* key : {"rule", "writeback", "state_update"})
      kinds.insert(fmt::format("{} {}", key, golden_case[key].get<std::string>()));
  for (const char* kind : {"state_update once", "state_update per_op"})
    EXPECT_TRUE(kinds.contains(kind)) << kind;
  for (const std::string_view rounding : EnumNames<WeightRounding>::kNames) {
    EXPECT_TRUE(rounding == "stochastic" || kinds.contains(fmt::format("writeback {}", rounding)))
        << rounding;
  }
  Rules::each([&]<class R>(std::type_identity<R>) {
    if (R::orthogonalization(typename R::Config{}))
      return;  // not element by element: orthogonalization_test.cpp
    EXPECT_TRUE(kinds.contains(fmt::format("rule {}", R::Config::kName)))
        << "no golden of " << R::Config::kName << ": tests/golden/make_optimizer_golden.py";
  });
}

// M+Adam on one row of FP8 weights with a pow2 scale, from codes to codes.
TEST(RulesGolden, BlockFp8EndToEnd) {
  const Json keys{{"rule", "m_plus_adam"},
                  {"lr_additive", 2e-2},
                  {"lr_multiplicative", 1e-2},
                  {"beta2", 0.95},
                  {"weight_decay_additive", 0.0}};
  constexpr uint8_t kBefore[] = {0xf8, 0xf6, 0xf4, 0xf2, 0xf0, 0xec, 0xe8, 0xe0,
                                 0x00, 0x60, 0x68, 0x6c, 0x70, 0x72, 0x74, 0x76};
  constexpr uint8_t kAfter[] = {0xf8, 0xf6, 0xf4, 0xf2, 0xf0, 0xec, 0xe7, 0xde,
                                0xc2, 0x5e, 0x67, 0x6c, 0x70, 0x72, 0x74, 0x76};
  for (const int64_t block : {16, 128}) {
    OptimizerRun run({.config = optimizer_config(keys),
                      .options = {.state = Format::kF32},
                      .encoding = {.format = WeightFormat::kBlockFp8, .fp8_block_size = block}},
                     {{.cols = 16}});
    const EncodedTensor& w = run.targets()[0].weights;
    memcpy(w.codes.data, kBefore, sizeof kBefore);
    *w.block_scales.as<uint16_t>() = 0x2000;
    fill_tensor(run.gradient(), [](int64_t, int64_t i) { return 0.001f * float(2 * i - 15); });
    run.step(1);
    EXPECT_EQ(bits_of_tensor(w.codes),
              (std::vector<uint32_t>(std::begin(kAfter), std::end(kAfter))));
    EXPECT_EQ(*w.block_scales.as<uint16_t>(), 0x2000);
  }
}

// Returns the value of a weight of 1 after 100000 steps of the given size, without betas and decay.
struct Walk {
  WeightRounding weight_rounding;
  KahanVariant variant;
  double step;
};
Compensated walked(const Walk& walk) {
  FlatConfig config = optimizer_config({{"rule", "adamw"},
                                        {"lr_additive", walk.step},
                                        {"beta1", 0.0},
                                        {"beta2", 0.0},
                                        {"eps", 1e-30},
                                        {"weight_decay_additive", 0.0}});
  config.weight_rounding = walk.weight_rounding;
  config.kahan_variant = walk.variant;
  OptimizerRun run({.config = config, .encoding = {.format = WeightFormat::kBF16}}, {{.cols = 1}});
  fill_tensor(run.weights(), [](int64_t, int64_t) { return 1.0f; });
  fill_tensor(run.gradient(), [](int64_t, int64_t) { return -1.0f; });
  for (int64_t t = 1; t <= 100000; ++t) run.step(t);
  const bool kahan = walk.weight_rounding == WeightRounding::kKahan;
  return {test::element(run.weights(), 0, 0),
          kahan ? test::element(run.state("kahan/w0"), 0, 0) : 0.0f};
}

TEST(RulesGolden, HowFarCompensationCarries) {
  const Compensated small = walked({WeightRounding::kKahan, KahanVariant::kFused, 1e-5});
  EXPECT_EQ(small.w, 2.0f);
  EXPECT_NEAR(small.c, 0.0039, 0.00005);
  EXPECT_EQ(walked({WeightRounding::kKahan, KahanVariant::kFused, 1e-4}).w, 11.75f);
  EXPECT_EQ(walked({WeightRounding::kKahan, KahanVariant::kPerOp, 1e-4}).w, 8.0f);
  EXPECT_EQ(walked({WeightRounding::kNearest, KahanVariant::kFused, 1e-4}).w, 1.0f);
}

TEST(RulesGolden, BiasCorrections) {
  const FlatConfig config =
      optimizer_config({{"rule", "adamw"}, {"lr_additive", 1e-3}, {"beta2", 0.95}});
  const Json& constants = golden()["constants"];
  for (int64_t t = 1; t <= 3; ++t) {
    const AdamMoments moments =
        AdamMoments::at(keys_of<AdamW::Config>(OptimizerConfig(config).rule), t);
    EXPECT_EQ(bits_of(moments.correction1.value), hex(constants["c1"][size_t(t - 1)]));
    EXPECT_EQ(bits_of(moments.correction2.value), hex(constants["c2"][size_t(t - 1)]));
    EXPECT_EQ(bits_of(moments.one_minus_beta1), hex(constants["one_minus_beta1"]));
  }
}

TEST(RulesGolden, ClipLimits) {
  Json keys = test::m_plus_adam_keys();
  keys["clip_exponent_step"] = 0.5;
  const OptimizerConfig config = optimizer_config(keys);
  const auto rule =
      MPlusAdam::Step<ScaleDecay>::at(keys_of<MPlusAdam::Config>(config.rule), {.t = 1}, {});
  const Json& constants = golden()["constants"];
  EXPECT_EQ(bits_of(rule.relative_step_low), hex(constants["clip_relative_step_low"]));
  EXPECT_EQ(rule.relative_step_high, 0.75f);
  EXPECT_EQ(bits_of(rule.exponent_step_low), hex(constants["clip_exponent_step_half"][0]));
  EXPECT_EQ(bits_of(rule.exponent_step_high), hex(constants["clip_exponent_step_half"][1]));
}

}  // namespace
}  // namespace mpt
