// Every key that affects what training computes has an effect: with another value, a run of a few
// steps ends with other weights or states. A new key must be added to one of the lists below.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "config/run_config_json.h"
#include "support/temp_directory.h"
#include "support/tiny_run.h"

namespace mpt::test {
namespace {

using Overrides = std::vector<std::string>;
constexpr int64_t kComparedSteps = 4;

struct Change {
  std::string key, value;
  Overrides beside{};  // settings that the key needs to have an effect
};
void PrintTo(const Change& change, std::ostream* out) { *out << change.key << "=" << change.value; }

const std::string kMultiplicative = "optimizer.lr_multiplicative";
const Overrides kAdamW{"optimizer.rule=adamw", kMultiplicative + "=null"},
    kTwin{"optimizer.rule=additive_twin", kMultiplicative + "=null"},
    kMuon{"optimizer.rule=muon", kMultiplicative + "=null"},
    kMadam{"optimizer.rule=madam", "optimizer.lr_additive=null"},
    kApollo{"optimizer.apollo_e=channel", "optimizer.apollo_e_gap=2"},
    kBoundWeights{"optimizer.clip_weight=0.5"}, kFp8Compute{"precision.compute=fp8"},
    kShortHistory{"precision.compute=fp8", "precision.fp8_history=1"},
    kCurrent{"precision.compute=fp8", "precision.fp8_recipe=current"},
    kBlockFp8{"precision.weights=block_fp8"}, kNvfp4{"precision.weights=nvfp4"},
    kLinear{"model.rope_scaling.rope_type=linear", "model.rope_scaling.factor=2"},
    kLlama3{"model.rope_scaling.rope_type=llama3", "model.rope_scaling.factor=4",
            "model.rope_scaling.original_max_position_embeddings=128"},
    kWsd{"schedule.shape=wsd", "schedule.decay_fraction=0.75"};

const std::vector<Change> kChanges{
    {"seed", "8"},
    {"model.hidden_size", "64"},
    {"model.intermediate_size", "48"},
    {"model.num_hidden_layers", "1"},
    {"model.num_attention_heads", "2"},
    {"model.num_key_value_heads", "2"},
    {"model.head_dim", "16"},
    {"model.vocab_size", "64"},
    {"model.tie_word_embeddings", "true"},
    {"model.qk_norm", "true"},
    {"model.rms_norm_eps", "1e-2"},
    {"model.rope_theta", "100"},
    {"model.rope_scaling.rope_type", "llama3", kLinear},
    {"model.rope_scaling.factor", "4", kLinear},
    {"model.rope_scaling.low_freq_factor", "2", kLlama3},
    {"model.rope_scaling.high_freq_factor", "8", kLlama3},
    {"model.rope_scaling.original_max_position_embeddings", "64", kLlama3},
    {"model.initializer_range", "0.2"},
    {"data.pack", "false"},
    {"data.packing", "best_fit"},
    {"data.attention", "document"},
    {"data.shuffle", "false"},
    {"batch.seq_len", "8"},
    {"batch.tokens_per_step", "48"},
    {"precision.weights", "fp32"},
    {"precision.compute", "fp8"},
    {"precision.optimizer_state", "fp32"},
    {"precision.gradient", "fp32"},
    {"precision.state_rounding", "stochastic"},
    {"precision.state_update", "per_op"},
    {"precision.fp8_block_size", "16", kBlockFp8},
    {"precision.fp8_scale_mode", "fp16", kBlockFp8},
    {"precision.nvfp4_scale_mode", "live", kNvfp4},
    {"precision.fp8_recipe", "current", kFp8Compute},
    {"precision.fp8_weight_recast", "microbatch", kShortHistory},
    {"precision.fp8_cast_source", "fp32", kFp8Compute},
    {"precision.fp8_weight_source", "bf16", {"precision.compute=fp8", "precision.weights=fp32"}},
    {"precision.fp8_lm_head", "true", {"precision.compute=fp8", "model.vocab_size=64"}},
    {"precision.fp8_history", "1", kFp8Compute},
    {"precision.fp8_amax_algo", "most_recent", kFp8Compute},
    {"precision.fp8_margin", "2", kFp8Compute},
    {"precision.fp8_amax_update", "step", kShortHistory},
    {"precision.fp8_eval_amax", "fold", kShortHistory},
    {"optimizer.rule", "adamw", {kMultiplicative + "=null", "optimizer.rule=lion"}},
    {"optimizer.lr_additive", "2e-2"},
    {"optimizer.lr_multiplicative", "2e-2"},
    {"optimizer.weight_decay_additive", "0.5"},
    {"optimizer.weight_decay_norms", "true"},
    {"optimizer.nvfp4_additive_scale", "block", kNvfp4},
    {"optimizer.beta1", "0.5"},
    {"optimizer.beta2", "0.5"},
    {"optimizer.eps", "1e-2"},
    {"optimizer.bias_correction", "false"},
    {"optimizer.gradient_ratio", "1", kTwin},
    {"optimizer.p_scale", "0.1", kMadam},
    {"optimizer.g_bound", "0.1", kMadam},
    {"optimizer.relative_step", "direct"},
    {"optimizer.tau", "0.1"},
    {"optimizer.clip_multiplicative_direction", "0.1"},
    {"optimizer.clip_relative_step", "1e-3"},
    {"optimizer.clip_exponent_step", "1e-3"},
    {"optimizer.clip_weight", "0.1"},
    {"optimizer.clip_weight_mode", "init_rms", kBoundWeights},
    {"optimizer.weight_decay_multiplicative", "0.5"},
    {"optimizer.weight_decay_multiplicative_mode",
     "exponent",
     {"optimizer.weight_decay_multiplicative=0.5"}},
    {"optimizer.apollo_e", "channel"},
    {"optimizer.apollo_e_rank", "2", kApollo},
    {"optimizer.apollo_e_gap", "3", kApollo},
    {"optimizer.apollo_e_scale", "unit", kApollo},
    {"optimizer.momentum", "0.5", kMuon},
    {"optimizer.nesterov", "false", kMuon},
    {"optimizer.weight_rounding", "stochastic"},
    {"optimizer.kahan_variant",
     "per_op",
     {"optimizer.rule=adamw", kMultiplicative + "=null", "optimizer.weight_rounding=kahan"}},
    {"optimizer.error_feedback", "momentum"},
    {"optimizer.clip_grad_norm", "0.1"},
    {"schedule.shape", "linear"},
    {"schedule.warmup_steps", "2"},
    {"schedule.warmup_fraction", "0.5"},
    {"schedule.final_fraction", "0.5"},
    {"schedule.decay_fraction", "0.5", kWsd},
    {"schedule.decay_shape", "one_minus_sqrt", kWsd},
    {"schedule.lr_schedule_offset", "-1"},
    {"train.steps", "5"},  // the length of the schedule
    {"train.z_loss", "0.1"},
    {"train.ema_decay", "0.5", {"train.ema_decay=0.9"}},
};

// Keys that affect memory, speed or logging; no bit of a weight or state.
const std::vector<Change> kSameBits{
    {"model.pad_multiple", "32", kFp8Compute},
    {"data.prefetch_steps", "1"},
    {"batch.micro_batch_rows", "2"},
    {"train.activation_recompute", "block"},
    {"train.loss_chunk_rows", "5"},
    {"train.spike_policy", "warn"},
    {"eval.every_steps", "1"},
    {"eval.tokens", "16"},
    {"checkpoint.async", "false"},
    {"log.update_statistics", "1"},
    {"device.threads", "2"},
};

// Keys of the same groups with a different kind of effect, tested elsewhere.
const std::set<std::string> kElsewhere{
    "data.train",
    "data.phases",
    "data.validation",
    "data.tokenizer",
    "data.changed_shards",
    "precision.fp8_fast_accum_fprop",  // only on GPUs
    "optimizer.writeback",             // a former name
    "optimizer.sr_saturate",           // for weights that would become infinite
    "train.tokens",
    "train.chinchilla",
    "train.init_from",
    "train.init_from_other_rope",
    "train.nonfinite_policy",
    "train.max_rollbacks",
    "train.max_skipped_steps",
    "train.spike_z",
    "train.spike_window",
};

// Runs of a few steps, each in its own directory.
class KeyEffects : public testing::TestWithParam<Change> {
 protected:
  void SetUp() override { write_tiny_data(directory_.path()); }

  // Returns the weights and states after the last step.
  std::string end_of(const std::string& name, const Overrides& overrides) {
    Overrides all{fmt::format("train.steps={}", kComparedSteps),
                  fmt::format("checkpoint.every_steps={}", kComparedSteps), "eval.every_steps=2",
                  "device.threads=1"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    const RunConfig config = tiny_config(directory_.path(), name, all);
    train(config);
    return tensors_at(config, kComparedSteps);
  }
  [[nodiscard]] bool changes_the_run(const Change& change) {
    Overrides with = change.beside;
    with.push_back(change.key + "=" + change.value);
    return end_of("without", change.beside) != end_of("with", with);
  }
  TempDirectory directory_{memory_directory()};
};
std::string name_of(const testing::TestParamInfo<Change>& info) {
  std::string name = info.param.key;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

TEST_P(KeyEffects, AnotherValueChangesTheRun) { EXPECT_TRUE(changes_the_run(GetParam())); }
INSTANTIATE_TEST_SUITE_P(Keys, KeyEffects, testing::ValuesIn(kChanges), name_of);

using KeysWithoutEffect = KeyEffects;
TEST_P(KeysWithoutEffect, AnotherValueChangesNoBit) { EXPECT_FALSE(changes_the_run(GetParam())); }
INSTANTIATE_TEST_SUITE_P(Keys, KeysWithoutEffect, testing::ValuesIn(kSameBits), name_of);

void add_leaves(const Json& properties, const std::string& prefix, std::set<std::string>& keys) {
  for (const auto& [name, value] : properties.items())
    if (value.contains("properties"))
      add_leaves(value.at("properties"), prefix + name + ".", keys);
    else
      keys.insert(prefix + name);
}

TEST(KeyEffectsList, HasEveryKeyOfTheseGroups) {
  std::set<std::string> known{"seed"};
  const Json schema = run_config_schema();
  for (const char* const group :
       {"model", "data", "batch", "precision", "optimizer", "schedule", "train"})
    add_leaves(schema.at("properties").at(group).at("properties"), std::string(group) + ".", known);
  std::set<std::string> listed = kElsewhere;
  for (const Change& change : kChanges) listed.insert(change.key);
  for (const Change& change : kSameBits)
    if (known.contains(change.key)) listed.insert(change.key);
  EXPECT_EQ(listed, known);
}

}  // namespace
}  // namespace mpt::test
