// The update rules against golden/optimizer_golden.json, bit for bit: through the Optimizer and element by
// element.
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
using test::optimizer_config;
using test::OptimizerRun;

const Json& golden() {
  static const Json content = [] {
    std::ifstream file(MPT_SOURCE_DIR "/tests/golden/optimizer_golden.json");
    return Json::parse(file);
  }();
  return content;
}

// Rules and write-backs that the file has and the program does not offer yet.
bool not_built(const Json& golden_case) {
  static const std::set<std::pair<std::string, std::string>> kNotBuilt{
      {"madam", "nearest"}, {"adamw", "kahan"}, {"m_plus_adam", "kahan"}};
  return kNotBuilt.contains({golden_case["rule"], golden_case["writeback"]});
}

bool known_to_config(const Json& golden_case) {
  return enum_from_name<UpdateRule>(golden_case["rule"].get<std::string>()).has_value() &&
         enum_from_name<Writeback>(golden_case["writeback"].get<std::string>()).has_value();
}

uint32_t hex(const Json& text) { return uint32_t(std::stoul(text.get<std::string>(), nullptr, 16)); }

// 8 digits are fp32, 4 are bf16.
float value_of_hex(const Json& text) {
  return text.get<std::string>().size() == 4 ? to_float(bf16{uint16_t(hex(text))}) : float_of(hex(text));
}

DType dtype_of_name(const Json& name) { return *enum_from_name<DType>(name.get<std::string>()); }

OptimizerConfig config_of(const Json& golden_case) {
  Json keys = golden_case["options"];
  keys["rule"] = golden_case["rule"];
  keys["writeback"] = golden_case["writeback"];
  return optimizer_config(keys);
}

std::string state_key(std::string_view name) { return name == "v_e" ? "ve" : std::string(name); }

void expect_all(const Tensor& tensor, const Json& expected, const std::string& what) {
  for (const uint32_t bits : bits_of_tensor(tensor)) ASSERT_EQ(bits, hex(expected)) << what;
}

// Every element of a matrix of partial units takes the steps of the case.
void run_through_optimizer(const Json& golden_case) {
  OptimizerRun run(config_of(golden_case),
                   {.weights = dtype_of_name(golden_case["weight_format"]),
                    .state = dtype_of_name(golden_case["state_format"]),
                    .gradient = dtype_of_name(golden_case["gradient_format"])},
                   {{.rows = 3, .cols = 131}});
  fill_tensor(run.weights(), [&](int64_t, int64_t) { return value_of_hex(golden_case["w0"]); });
  run.optimizer().weights_initialized();
  for (size_t i = 0; i < golden_case["steps"].size(); ++i) {
    fill_tensor(run.gradient(), [&](int64_t, int64_t) { return value_of_hex(golden_case["gradients"][i]); });
    run.step(int64_t(i) + 1);
    const Json& expected = golden_case["steps"][i];
    const std::string when = fmt::format(" at t = {}", i + 1);
    expect_all(run.weights(), expected["w"], "w" + when);
    for (const std::string_view name : state_names(config_of(golden_case)))
      expect_all(run.state(std::string(name) + "/w0"), expected[state_key(name)], std::string(name) + when);
  }
}

uint32_t stored_bits(DType dtype, float x) {
  return dtype == DType::kF32 ? bits_of(x) : bf16_nearest(x).bits;
}
float stored(DType dtype, float x) { return dtype == DType::kF32 ? x : rounded_to<bf16>(x); }

// The rule itself, on one weight.
void run_directly(const Json& golden_case) {
  const OptimizerConfig config = config_of(golden_case);
  const DType weights = dtype_of_name(golden_case["weight_format"]);
  const DType states = dtype_of_name(golden_case["state_format"]);
  float w = value_of_hex(golden_case["w0"]), state[3] = {};
  for (size_t i = 0; i < golden_case["steps"].size(); ++i) {
    const StepScalars step{.t = int64_t(i) + 1,
                           .lr_additive = config.lr_additive,
                           .lr_multiplicative = config.lr_multiplicative};
    const std::vector<float> table = exponent_decay_table(config, step);
    const AnyRule rule = make_rule(config, step, {.rank = 2, .weight_unit = 1.0f}, table.data());
    const float g = value_of_hex(golden_case["gradients"][i]);
    const float exact = std::visit([&](const auto& r) { return r.next(w, g, state); }, rule);
    const Json& expected = golden_case["steps"][i];
    EXPECT_EQ(stored_bits(weights, exact), hex(expected["w"])) << "t = " << step.t;
    if (expected.contains("w_before_rounding")) {
      EXPECT_EQ(bits_of(exact), hex(expected["w_before_rounding"])) << "t = " << step.t;
    }
    const std::vector<std::string_view> names = state_names(config);
    for (size_t s = 0; s < names.size(); ++s)
      EXPECT_EQ(stored_bits(states, state[s]), hex(expected[state_key(names[s])]))
          << names[s] << " t = " << step.t;
    w = stored(weights, exact);
    for (float& x : state) x = stored(states, x);
  }
}

TEST(RulesGolden, EveryCaseThroughTheOptimizer) {
  for (const Json& golden_case : golden()["cases"]) {
    SCOPED_TRACE(golden_case["name"]);
    if (!not_built(golden_case)) run_through_optimizer(golden_case);
  }
}

TEST(RulesGolden, EveryCaseDirectly) {
  for (const Json& golden_case : golden()["cases"]) {
    SCOPED_TRACE(golden_case["name"]);
    if (!not_built(golden_case)) run_directly(golden_case);
  }
}

TEST(RulesGolden, OnlyWhatIsNotBuiltIsLeftOut) {
  int run = 0;
  for (const Json& golden_case : golden()["cases"]) {
    EXPECT_NE(known_to_config(golden_case), not_built(golden_case)) << golden_case["name"];
    run += !not_built(golden_case);
  }
  EXPECT_GE(run, 30);
}

TEST(RulesGolden, BiasCorrections) {
  const OptimizerConfig config =
      optimizer_config({{"rule", "adamw"}, {"lr_additive", 1e-3}, {"beta2", 0.95}});
  const Json& constants = golden()["constants"];
  for (int64_t t = 1; t <= 3; ++t) {
    const AnyRule rule = make_rule(config, {.t = t}, {.rank = 2, .weight_unit = 1.0f}, nullptr);
    const AdamMoments& moments = std::get<AdamW>(rule).moments;
    EXPECT_EQ(bits_of(moments.correction1), hex(constants["c1"][size_t(t - 1)]));
    EXPECT_EQ(bits_of(moments.correction2), hex(constants["c2"][size_t(t - 1)]));
    EXPECT_EQ(bits_of(moments.one_minus_beta1), hex(constants["one_minus_beta1"]));
  }
}

TEST(RulesGolden, ClipLimits) {
  Json keys = test::m_plus_adam_keys();
  keys["clip_exponent_step"] = 0.5;
  const AnyRule any = make_rule(optimizer_config(keys), {.t = 1}, {.rank = 2, .weight_unit = 1.0f}, nullptr);
  const auto& rule = std::get<MPlusAdam<ScaleDecay>>(any);
  const Json& constants = golden()["constants"];
  EXPECT_EQ(bits_of(rule.relative_step_low), hex(constants["clip_relative_step_low"]));
  EXPECT_EQ(rule.relative_step_high, 0.75f);
  EXPECT_EQ(bits_of(rule.exponent_step_low), hex(constants["clip_exponent_step_half"][0]));
  EXPECT_EQ(bits_of(rule.exponent_step_high), hex(constants["clip_exponent_step_half"][1]));
}

}  // namespace
}  // namespace mpt
