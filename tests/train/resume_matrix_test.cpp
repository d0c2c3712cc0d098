// Exact resume for every combination of update rule, rounding, weight format, optimizer state and
// compute format: k steps, a new process's state and N - k steps give the bytes of N steps.
#include <gtest/gtest.h>

#include "device/bf16_dot.h"
#include "support/temp_directory.h"
#include "support/tiny_run.h"

namespace mpt::test {
namespace {

// One choice of an axis: a name for the test and the keys it sets.
struct Choice {
  std::string name;
  std::vector<std::string> overrides;
};
using Axis = std::vector<Choice>;

void PrintTo(const Choice& choice, std::ostream* out) { *out << choice.name; }

const Axis kRules{
    {"adamw", {"optimizer.rule=adamw", "optimizer.lr_multiplicative=null"}},
    {"additive_twin", {"optimizer.rule=additive_twin", "optimizer.lr_multiplicative=null"}},
    {"lion", {"optimizer.rule=lion", "optimizer.lr_multiplicative=null"}},
    {"muon", {"optimizer.rule=muon", "optimizer.lr_multiplicative=null"}},
    // A step that every format of the matrix can represent: two per cent of a weight are lost to
    // FP8.
    {"madam",
     {"optimizer.rule=madam", "optimizer.lr_additive=null", "optimizer.g_bound=1",
      "optimizer.lr_multiplicative=0.2"}},
    {"m_plus_adam", {}},
    {"m_plus_adam_exponent",
     {"optimizer.weight_decay_multiplicative=0.1",
      "optimizer.weight_decay_multiplicative_mode=exponent"}},
    {"apollo_e_mini",
     {"optimizer.apollo_e=mini", "optimizer.apollo_e_rank=1", "optimizer.apollo_e_gap=3"}},
    {"apollo_e_channel",
     {"optimizer.apollo_e=channel", "optimizer.apollo_e_rank=3", "optimizer.apollo_e_gap=2"}},
};
const Axis kRoundings{{"nearest", {}}, {"stochastic", {"optimizer.weight_rounding=stochastic"}}};
const Axis kCompleted{{"kahan", {"optimizer.weight_rounding=kahan"}},
                      {"remainder", {"optimizer.weight_rounding=remainder"}},
                      {"ulp_residual", {"optimizer.weight_rounding=ulp_residual"}}};
const Axis kKeptOrFedBack{
    {"master", {"optimizer.weight_rounding=master"}},
    {"fed_back", {"optimizer.error_feedback=momentum"}},
    {"fed_back_stochastic",
     {"optimizer.error_feedback=momentum", "optimizer.weight_rounding=stochastic"}}};
const Axis kFeedbackRules{kRules[0], kRules[1], {"m_plus_adam", {}}};
const Axis kBf16{{"bf16", {}}};
const Axis kWeights{
    {"fp32", {"precision.weights=fp32"}},
    {"bf16", {}},
    {"fp8_pow2", {"precision.weights=block_fp8", "precision.fp8_block_size=16"}},
    {"fp8_fp16", {"precision.weights=block_fp8", "precision.fp8_scale_mode=fp16"}},
    {"nvfp4_sticky", {"precision.weights=nvfp4"}},
    {"nvfp4_live", {"precision.weights=nvfp4", "precision.nvfp4_scale_mode=live"}},
    {"mxfp8", {"precision.weights=mxfp8"}},
};
const Axis kStates{{"state_bf16", {}},
                   {"state_stochastic", {"precision.state_rounding=stochastic"}},
                   {"state_per_op", {"precision.state_update=per_op"}},
                   {"state_fp32", {"precision.optimizer_state=fp32", "precision.gradient=fp32"}}};
const Axis kFp8Axis{{"fp8", {"precision.compute=fp8", "precision.fp8_history=3"}}};
const Axis kCompute{
    {"compute_fp32", {"precision.compute=fp32"}},
    {"compute_bf16", {}},
    {"delayed", {"precision.compute=fp8", "precision.fp8_history=3"}},
    {"delayed_as_transformer_engine",
     {"precision.compute=fp8", "precision.fp8_weight_recast=microbatch",
      "precision.fp8_weight_source=bf16", "precision.fp8_eval_amax=fold"}},
    {"delayed_per_step",
     {"precision.compute=fp8", "precision.fp8_amax_update=step",
      "precision.fp8_amax_algo=most_recent", "precision.fp8_margin=1"}},
    {"current",
     {"precision.compute=fp8", "precision.fp8_recipe=current", "precision.fp8_cast_source=fp32"}},
    {"recomputed",
     {"precision.compute=fp8", "precision.fp8_history=3", "train.activation_recompute=block"}},
    {"head", {"precision.compute=fp8", "precision.fp8_lm_head=true", "model.vocab_size=64"}},
    {"ema", {"train.ema_decay=0.9"}},
    {"family", with_family({})},
    {"family_head",
     with_family({"precision.compute=fp8", "precision.fp8_lm_head=true", "model.vocab_size=64"})},
};

Axis product(const Axis& a, const Axis& b) {
  Axis all;
  for (const Choice& left : a)
    for (const Choice& right : b) {
      Choice both{left.name + "_" + right.name, left.overrides};
      both.overrides.insert(both.overrides.end(), right.overrides.begin(), right.overrides.end());
      all.push_back(std::move(both));
    }
  return all;
}

// One test per rule × rounding × weight format runs all states in it: separate tests would spend
// their time on starting.
Axis storage_combinations() {
  Axis all = product(product(kRules, kRoundings), kWeights);
  for (Choice& choice : product(product(kRules, kCompleted), kBf16))
    all.push_back(std::move(choice));
  const Axis encoded(kWeights.begin() + 1, kWeights.end());
  for (Choice& choice : product(product(kFeedbackRules, kKeptOrFedBack), encoded))
    all.push_back(std::move(choice));
  return all;
}

constexpr int64_t kMatrixSteps = 4, kResumedAt = 2;

void expect_exact_resume(const Choice& choice) {
  SCOPED_TRACE(choice.name);
  const TempDirectory directory;
  write_tiny_data(directory.path());
  std::vector<std::string> overrides{"train.steps=4", "checkpoint.every_steps=2",
                                     "eval.every_steps=1", "optimizer.lr_multiplicative=2e-2"};
  overrides.insert(overrides.end(), choice.overrides.begin(), choice.overrides.end());
  const RunConfig whole = tiny_config(directory.path(), "whole", overrides);
  train(whole);
  const RunConfig part = tiny_config(directory.path(), "part", overrides);
  train(part, checkpoint_path(whole, kResumedAt));
  EXPECT_TRUE(tensors_at(part, kMatrixSteps) == tensors_at(whole, kMatrixSteps));
  EXPECT_TRUE(metrics_of(whole).ends_with(metrics_of(part)));
}

// Tensors that may be unchanged over two steps: scales, and values that exist once per tensor.
bool may_stand_still(const std::string& name) {
  return name == "init_rms" || name.ends_with("_scale") || name.ends_with("_scales");
}

void expect_every_tensor_changes(const Choice& choice) {
  SCOPED_TRACE(choice.name);
  const TempDirectory directory;
  write_tiny_data(directory.path());
  // Steps that the coarsest format can represent.
  std::vector<std::string> overrides{"train.steps=4", "checkpoint.every_steps=2",
                                     "optimizer.lr_additive=5e-2",
                                     "optimizer.lr_multiplicative=2e-2"};
  overrides.insert(overrides.end(), choice.overrides.begin(), choice.overrides.end());
  const RunConfig config = tiny_config(directory.path(), "run", overrides);
  train(config);
  const auto file = [&](int64_t step) {
    return SafetensorsReader(posix_file_system(),
                             checkpoint_path(config, step) + "/rank_00000_of_00001.safetensors");
  };
  const SafetensorsReader before = file(kResumedAt), after = file(kMatrixSteps);
  ASSERT_EQ(before.tensors().size(), after.tensors().size());
  for (const auto& info : before.tensors())
    if (!may_stand_still(info.name)) {
      EXPECT_FALSE(before.read(info) == after.read(after.at(info.name))) << info.name;
    }
}

class ResumeMatrix : public testing::TestWithParam<Choice> {};

TEST_P(ResumeMatrix, EveryState) {
  for (const Choice& choice : product({GetParam()}, kStates)) expect_exact_resume(choice);
}
TEST_P(ResumeMatrix, EverySavedTensorChanges) { expect_every_tensor_changes(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Storage, ResumeMatrix, testing::ValuesIn(storage_combinations()),
                         [](const auto& instance) { return instance.param.name; });

INSTANTIATE_TEST_SUITE_P(BlockRates, ResumeMatrix,
                         testing::Values(Choice{
                             "block_rates",
                             {"precision.weights=nvfp4", "optimizer.nvfp4_additive_scale=block"}}),
                         [](const auto& instance) { return instance.param.name; });

INSTANTIATE_TEST_SUITE_P(Ema, ResumeMatrix,
                         testing::Values(Choice{
                             "ema", {"precision.weights=nvfp4", "train.ema_decay=0.9"}}),
                         [](const auto& instance) { return instance.param.name; });

class ResumeCompute : public testing::TestWithParam<Choice> {};

TEST_P(ResumeCompute, EveryFormat) { expect_exact_resume(GetParam()); }
INSTANTIATE_TEST_SUITE_P(Weights, ResumeCompute, testing::ValuesIn(product(kWeights, kCompute)),
                         [](const auto& instance) { return instance.param.name; });
INSTANTIATE_TEST_SUITE_P(Rules, ResumeCompute,
                         testing::ValuesIn(product(product(kRules, kRoundings), kFp8Axis)),
                         [](const auto& instance) { return instance.param.name; });

TEST(ResumeProducts, ByAvx512Bf16) {
  if (const std::string problem = why_no_bf16_dot(Bf16Dot::kAvx512Bf16); !problem.empty())
    GTEST_SKIP() << problem;
  const std::string dot = "device.bf16_dot=avx512_bf16";
  expect_exact_resume({"bf16", {dot}});
  expect_exact_resume({"fp8", {dot, "precision.compute=fp8", "precision.fp8_history=3"}});
}

}  // namespace
}  // namespace mpt::test
