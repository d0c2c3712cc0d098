// config.json of Hugging Face: the translation of every key, and that none is ignored.
#include "interchange/hugging_face_config.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "config/run_config.h"
#include "core/io/file_system.h"
#include "interchange/export_model.h"
#include "model/parameters.h"
#include "support/draws.h"
#include "support/expect_error.h"

namespace mpt::test {
namespace {

using nlohmann::json;

json plain() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_size", 64},
          {"intermediate_size", 96},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"vocab_size", 100},
          {"max_position_embeddings", 512}};
}
json qwen3() {
  json keys = plain();
  keys.update({{"model_type", "qwen3"},
               {"architectures", {"Qwen3ForCausalLM"}},
               {"head_dim", 32},
               {"num_key_value_heads", 2},
               {"use_sliding_window", false},
               {"sliding_window", nullptr},
               {"max_window_layers", 28},
               {"layer_types", {"full_attention", "full_attention"}}});
  return keys;
}
json with(json keys, const json& more) {
  keys.update(more);
  return keys;
}
HuggingFaceModel read(const json& keys, const std::vector<std::string>& ignored = {}) {
  return llama_config_of_hugging_face(keys.dump(), "dir/config.json", ignored);
}
LlamaConfig model_of(const json& keys) { return read(keys).model; }

// --- published models ----------------------------------------------------------------------------

// HuggingFaceTB/SmolLM2-135M.
const json kSmolLm2{{"architectures", {"LlamaForCausalLM"}},
                    {"attention_bias", false},
                    {"attention_dropout", 0.0},
                    {"bos_token_id", 0},
                    {"eos_token_id", 0},
                    {"hidden_act", "silu"},
                    {"hidden_size", 576},
                    {"initializer_range", 0.041666666666666664},
                    {"intermediate_size", 1536},
                    {"is_llama_config", true},
                    {"max_position_embeddings", 8192},
                    {"model_type", "llama"},
                    {"num_attention_heads", 9},
                    {"num_hidden_layers", 30},
                    {"num_key_value_heads", 3},
                    {"pretraining_tp", 1},
                    {"rms_norm_eps", 1e-05},
                    {"rope_interleaved", false},
                    {"rope_scaling", nullptr},
                    {"rope_theta", 100000},
                    {"tie_word_embeddings", true},
                    {"torch_dtype", "bfloat16"},
                    {"transformers_version", "4.40.1"},
                    {"use_cache", true},
                    {"vocab_size", 49152}};

// meta-llama/Llama-3.2-1B.
const json kLlama32{{"architectures", {"LlamaForCausalLM"}},
                    {"attention_bias", false},
                    {"attention_dropout", 0.0},
                    {"bos_token_id", 128000},
                    {"eos_token_id", 128001},
                    {"head_dim", 64},
                    {"hidden_act", "silu"},
                    {"hidden_size", 2048},
                    {"initializer_range", 0.02},
                    {"intermediate_size", 8192},
                    {"max_position_embeddings", 131072},
                    {"mlp_bias", false},
                    {"model_type", "llama"},
                    {"num_attention_heads", 32},
                    {"num_hidden_layers", 16},
                    {"num_key_value_heads", 8},
                    {"pretraining_tp", 1},
                    {"rms_norm_eps", 1e-05},
                    {"rope_scaling",
                     {{"factor", 32.0},
                      {"high_freq_factor", 4.0},
                      {"low_freq_factor", 1.0},
                      {"original_max_position_embeddings", 8192},
                      {"rope_type", "llama3"}}},
                    {"rope_theta", 500000.0},
                    {"tie_word_embeddings", true},
                    {"torch_dtype", "bfloat16"},
                    {"transformers_version", "4.45.0.dev0"},
                    {"use_cache", true},
                    {"vocab_size", 128256}};

// The counts are from the models' cards and transformers' num_parameters().
TEST(HuggingFaceConfig, PublishedModelsHaveTheirCounts) {
  const HuggingFaceModel smol = read(kSmolLm2), llama = read(kLlama32);
  EXPECT_EQ(parameter_count(smol.model), 134'515'008);
  EXPECT_EQ(total_elements(llama_parameters(smol.model)), 134'515'008);
  EXPECT_EQ(smol.max_position_embeddings, 8192);
  EXPECT_EQ(parameter_count(llama.model), 1'235'814'400);
  EXPECT_EQ(total_elements(llama_parameters(llama.model)), 1'235'814'400);
  EXPECT_EQ(llama.max_position_embeddings, 131072);
}

TEST(HuggingFaceConfig, PublishedModelsHaveTheirShapes) {
  const auto shape = [](const LlamaConfig& model, LayerParam which) {
    const ParamSpec spec = llama_parameters(model)[size_t(layer_index(model, 0, which))];
    return std::pair(spec.rows, spec.cols);
  };
  const LlamaConfig smol = model_of(kSmolLm2), llama = model_of(kLlama32);
  EXPECT_EQ(shape(smol, LayerParam::kQ), std::pair(int64_t{576}, int64_t{576}));
  EXPECT_EQ(shape(smol, LayerParam::kK), std::pair(int64_t{192}, int64_t{576}));
  EXPECT_EQ(shape(llama, LayerParam::kV), std::pair(int64_t{512}, int64_t{2048}));
  EXPECT_EQ(shape(llama, LayerParam::kO), std::pair(int64_t{2048}, int64_t{2048}));
  for (const LlamaConfig& model : {smol, llama})
    for (const ParamSpec& spec : llama_parameters(model)) EXPECT_NE(spec.name, "lm_head.weight");
}

// --- keys ----------------------------------------------------------------------------------------

TEST(HuggingFaceConfig, DefaultsAreThoseOfTransformers) {
  const LlamaConfig model = model_of(plain());
  EXPECT_EQ(model.key_value_heads(), 4);
  EXPECT_EQ(model.head_dim(), 16);
  EXPECT_FALSE(model.tie_word_embeddings);
  EXPECT_FALSE(model.qk_norm);
  EXPECT_EQ(model.rms_norm_eps, 1e-6);
  EXPECT_EQ(model.rope_theta, 10000);
  EXPECT_EQ(model.rope_scaling, RopeScaling{});
  EXPECT_EQ(model_of(with(plain(), {{"num_key_value_heads", nullptr}, {"head_dim", nullptr}})),
            model);
}

TEST(HuggingFaceConfig, Qwen3NormalizesHeads) {
  const LlamaConfig model = model_of(qwen3());
  EXPECT_TRUE(model.qk_norm);
  EXPECT_EQ(model.head_dim(), 32);
  EXPECT_EQ(model.key_value_heads(), 2);
  for (const char* key : {"head_dim", "num_key_value_heads"}) {
    json keys = qwen3();
    keys.erase(key);
    EXPECT_ERROR(read(keys), "dir/config.json: " + std::string(key) + ": missing", "qwen3");
  }
}

TEST(HuggingFaceConfig, RopeScalingHasThreeSpellings) {
  const RopeScaling linear{.rope_type = RopeType::kLinear, .factor = 2.5};
  const json kParts{{"factor", 2.5}};
  for (const json& type : {json{{"type", "linear"}}, json{{"rope_type", "linear"}},
                           json{{"type", "linear"}, {"rope_type", "linear"}}}) {
    const LlamaConfig model =
        model_of(with(plain(), {{"rope_theta", 500}, {"rope_scaling", with(type, kParts)}}));
    EXPECT_EQ(model.rope_scaling, linear);
    EXPECT_EQ(model.rope_theta, 500);
  }
  const json parameters{{"rope_type", "linear"}, {"factor", 2.5}, {"rope_theta", 500.0}};
  const LlamaConfig model = model_of(with(plain(), {{"rope_parameters", parameters}}));
  EXPECT_EQ(model.rope_scaling, linear);
  EXPECT_EQ(model.rope_theta, 500);
  EXPECT_EQ(model_of(with(plain(), {{"rope_parameters", {{"rope_type", "default"}}}})).rope_scaling,
            RopeScaling{});
  json of_llama = kLlama32;
  of_llama["rope_parameters"] = of_llama["rope_scaling"];
  of_llama["rope_parameters"]["rope_theta"] = of_llama["rope_theta"];
  EXPECT_EQ(model_of(of_llama), model_of(kLlama32)) << "both spellings that agree";
  of_llama.erase("rope_scaling");
  of_llama.erase("rope_theta");
  EXPECT_EQ(model_of(of_llama), model_of(kLlama32));
}

struct Refused {
  json keys;  // on top of a plain model
  std::string says;
};

TEST(HuggingFaceConfig, WhatIsNotUnderstoodIsRefusedByName) {
  const std::vector<Refused> all{
      {{{"model_type", "mistral"}}, "model_type: expected llama or qwen3, found the string"},
      {{{"model_type", nullptr}}, "model_type: expected llama or qwen3, found nothing"},
      {{{"architectures", {"LlamaForSequenceClassification"}}}, "architectures: expected"},
      {{{"hidden_size", nullptr}}, "hidden_size: missing"},
      {{{"hidden_size", "64"}}, "hidden_size: expected an integer"},
      {{{"hidden_size", 0}}, "hidden_size: must be at least 2"},
      {{{"vocab_size", 1e18}}, "vocab_size: must be"},
      {{{"num_hidden_layers", -1}}, "num_hidden_layers: must be at least 1"},
      {{{"num_attention_heads", 1.5}}, "num_attention_heads: expected an integer"},
      {{{"rms_norm_eps", "small"}}, "rms_norm_eps: expected a number"},
      {{{"tie_word_embeddings", 1}}, "tie_word_embeddings: expected true or false"},
      {{{"max_position_embeddings", -5}}, "max_position_embeddings: expected a number of tokens"},
      {{{"max_position_embeddings", 1e30}}, "max_position_embeddings: expected a number of tokens"},
      {{{"hidden_act", "gelu"}}, "hidden_act: expected \"silu\""},
      {{{"attention_bias", true}}, "attention_bias: expected false"},
      {{{"mlp_bias", true}}, "mlp_bias: expected false"},
      {{{"attention_dropout", 0.1}}, "attention_dropout: expected 0"},
      {{{"rope_interleaved", true}}, "rope_interleaved: expected false"},
      {{{"quantization_config", json::object()}}, "quantization_config: quantized weights"},
      {{{"qk_norm", true}}, "qk_norm: unknown key; if it changes nothing"},
      {{{"pad_multiple", 64}}, "pad_multiple: unknown key"},
      {{{"num_experts", 8}}, "leave it out with --ignore num_experts"},
      {{{"layer_types", {"full_attention"}}}, "layer_types: unknown key"},
      {{{"rope_scaling", 2}}, "rope_scaling: expected an object or null"},
      {{{"rope_scaling", {{"type", "dynamic"}, {"factor", 2}}}},
       "rope_scaling.rope_type: expected"},
      {{{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2}}}}, "default, linear, llama3"},
      {{{"rope_scaling", {{"rope_type", "linear"}}}}, "rope_scaling: has no factor"},
      {{{"rope_scaling", {{"rope_type", "llama3"}, {"factor", 2}}}}, "has no low_freq_factor"},
      {{{"rope_scaling", {{"rope_type", "linear"}, {"type", "llama3"}, {"factor", 2}}}},
       "rope_type is the string \"linear\", but type is"},
      {{{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2}, {"beta_fast", 32}}}},
       "rope_scaling.beta_fast: unknown key"},
      {{{"rope_theta", 10}, {"rope_parameters", {{"rope_theta", 20}}}}, "rope_theta: is"},
      {{{"rope_parameters", {{"full_attention", json::object()}}}}, "full_attention: unknown key"},
  };
  for (const Refused& refused : all) {
    SCOPED_TRACE(refused.keys.dump());
    EXPECT_ERROR(read(with(plain(), refused.keys)), "dir/config.json: ", refused.says);
  }
  // From Llama-2-13B; it changes the order of sums, not the function.
  EXPECT_NO_THROW(read(with(plain(), {{"pretraining_tp", 2}})));
  EXPECT_ERROR(read(with(qwen3(), {{"use_sliding_window", true}})), "use_sliding_window: expected");
  EXPECT_ERROR(read(with(qwen3(), {{"layer_types", {"sliding_attention"}}})),
               "layer_types: expected a list of \"full_attention\"");
}

TEST(HuggingFaceConfig, AllProblemsAreToldAtOnce) {
  EXPECT_ERROR(read(with(plain(), {{"hidden_act", "gelu"}, {"foo", 1}, {"vocab_size", "x"}})),
               "hidden_act", "foo", "vocab_size");
}

TEST(HuggingFaceConfig, KeysAreIgnoredOnlyByName) {
  const json keys = with(plain(), {{"max_sequence_length", 2048}});
  EXPECT_ERROR(read(keys), "max_sequence_length: unknown key", "--ignore max_sequence_length");
  EXPECT_EQ(read(keys, {"max_sequence_length"}).model, model_of(plain()));
  EXPECT_ERROR(read(keys, {"max_sequence_length", "hidden_act"}), "hidden_act: --ignore names",
               "not there");
  EXPECT_ERROR(read(plain(), {"hidden_size"}), "hidden_size: --ignore names", "understood");
}

TEST(HuggingFaceConfig, AnExportReadsBack) {
  for (const json& keys : {plain(), qwen3(), kSmolLm2, kLlama32,
                           with(plain(), {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}),
                           with(plain(), {{"head_dim", 32}})}) {
    RunConfig config;
    config.model = model_of(keys);
    config.batch.seq_len = 77;
    const HuggingFaceModel back = read(json(hugging_face_config(config, {}, {})));
    EXPECT_EQ(back.max_position_embeddings, 77);
    EXPECT_EQ(back.model.head_dim(), config.model.head_dim());
    EXPECT_EQ(back.model.key_value_heads(), config.model.key_value_heads());
    LlamaConfig same = back.model;
    same.head_size = config.model.head_size;
    same.num_key_value_heads = config.model.num_key_value_heads;
    EXPECT_EQ(same, config.model) << keys.dump();
  }
}

// --- hostile texts -------------------------------------------------------------------------------

TEST(HuggingFaceConfig, WhatIsNoObjectIsRefused) {
  for (const char* text : {"", "[]", "7", "null", "{", "{\"model_type\":\"llama\",}", "\xff\xfe"})
    EXPECT_ERROR(llama_config_of_hugging_face(text, "dir/config.json"), "dir/config.json");
}

// Any text results in a model or an Error.
TEST(HuggingFaceConfig, DamagedTextsNeverCrash) {
  const std::string good = kLlama32.dump();
  Draws draws(7);
  int64_t read_well = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    for (int64_t n = 1 + draws.index(3); n > 0; --n)
      text[size_t(draws.index(std::ssize(text)))] = char(draws.index(256));
    if (draws.index(4) == 0) text.resize(size_t(draws.index(std::ssize(text))));
    try {
      const LlamaConfig model = llama_config_of_hugging_face(text, "damaged").model;
      EXPECT_GE(model.num_attention_heads, 1);
      ++read_well;
    } catch (const Error&) {
    }
  }
  EXPECT_LT(read_well, 3000);
}

}  // namespace
}  // namespace mpt::test
