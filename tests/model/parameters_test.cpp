// The parameter list: counts of the paper's models, names, order, shapes, padding.
#include "model/parameters.h"

#include <gtest/gtest.h>

#include "core/io/safetensors.h"
#include "model/golden_model.h"

namespace mpt::test {
namespace {

struct PaperModel {
  const char* name;
  LlamaConfig config;
  int64_t parameters, embedding_and_head, linears, norms, padded_intermediate;
};

LlamaConfig paper_config(int64_t hidden, int64_t inter, int64_t layers) {
  return {.hidden_size = hidden,
          .intermediate_size = inter,
          .num_hidden_layers = layers,
          .num_attention_heads = hidden / 64,
          .vocab_size = 32000};
}

const PaperModel kPaperModels[] = {
    {"60M", paper_config(512, 1376, 8), 58'073'600, 2 * 16'384'000, 25'296'896, 8'704, 1376},
    {"130M", paper_config(768, 2048, 12), 134'105'856, 2 * 24'576'000, 84'934'656, 19'200, 2048},
    {"350M", paper_config(1024, 2736, 24), 367'969'280, 2 * 32'768'000, 302'383'104, 50'176, 2736},
    {"1B", paper_config(2048, 5461, 24), 1'339'082'752, 2 * 65'536'000, 1'207'910'400, 100'352,
     5472}};

int64_t elements_of(const std::vector<ParamSpec>& specs, ParamKind kind) {
  int64_t n = 0;
  for (const ParamSpec& spec : specs) n += spec.kind == kind ? spec.elements() : 0;
  return n;
}

TEST(Parameters, CountsOfThePaper) {
  for (const PaperModel& model : kPaperModels) {
    const std::vector<ParamSpec> specs = llama_parameters(model.config);
    EXPECT_EQ(total_elements(specs), model.parameters) << model.name;
    EXPECT_EQ(parameter_count(model.config), model.parameters) << model.name;
    EXPECT_EQ(elements_of(specs, ParamKind::kLinear), model.linears) << model.name;
    EXPECT_EQ(elements_of(specs, ParamKind::kNorm), model.norms) << model.name;
    EXPECT_EQ(elements_of(specs, ParamKind::kEmbedding) + elements_of(specs, ParamKind::kHead),
              model.embedding_and_head)
        << model.name;
    EXPECT_EQ(padded_intermediate_size(model.config), model.padded_intermediate) << model.name;
  }
}

const LlamaConfig kSmolLm2{.hidden_size = 576,
                           .intermediate_size = 1536,
                           .num_hidden_layers = 30,
                           .num_attention_heads = 9,
                           .num_key_value_heads = 3,
                           .vocab_size = 49152,
                           .tie_word_embeddings = true};
const LlamaConfig kLlama32{.hidden_size = 2048,
                           .intermediate_size = 8192,
                           .num_hidden_layers = 16,
                           .num_attention_heads = 32,
                           .num_key_value_heads = 8,
                           .head_size = 64,
                           .vocab_size = 128256,
                           .tie_word_embeddings = true};
const LlamaConfig kQwen3{.hidden_size = 1024,
                         .intermediate_size = 3072,
                         .num_hidden_layers = 28,
                         .num_attention_heads = 16,
                         .num_key_value_heads = 8,
                         .head_size = 128,
                         .vocab_size = 151936,
                         .tie_word_embeddings = true,
                         .qk_norm = true};

// SmolLM2-135M, Llama-3.2-1B and Qwen3-0.6B, counted as in their model cards.
TEST(Parameters, CountsOfPublishedModels) {
  for (const auto& [config, parameters] :
       {std::pair{kSmolLm2, 134'515'008}, {kLlama32, 1'235'814'400}, {kQwen3, 596'049'920}}) {
    EXPECT_EQ(total_elements(llama_parameters(config)), parameters);
    EXPECT_EQ(parameter_count(config), parameters);
  }
}

TEST(Parameters, ShapesOfGroupedQueriesAndNormedHeads) {
  const std::vector<ParamSpec> specs = llama_parameters(kQwen3);
  const auto expect = [&](LayerParam which, const char* name, int64_t rows, int64_t cols) {
    const ParamSpec& spec = specs[size_t(layer_index(kQwen3, 3, which))];
    EXPECT_EQ(spec.name, fmt::format("model.layers.3.{}.weight", name));
    EXPECT_EQ(spec.rows, rows) << name;
    EXPECT_EQ(spec.cols, cols) << name;
  };
  expect(LayerParam::kQ, "self_attn.q_proj", 2048, 1024);
  expect(LayerParam::kK, "self_attn.k_proj", 1024, 1024);
  expect(LayerParam::kV, "self_attn.v_proj", 1024, 1024);
  expect(LayerParam::kO, "self_attn.o_proj", 1024, 2048);
  expect(LayerParam::kDown, "mlp.down_proj", 1024, 3072);
  expect(LayerParam::kQNorm, "self_attn.q_norm", 1, 128);
  expect(LayerParam::kKNorm, "self_attn.k_norm", 1, 128);
}

// A single matrix, which is read first and whose gradient is complete last.
TEST(Parameters, ATiedHeadIsTheEmbedding) {
  const std::vector<ParamSpec> specs = llama_parameters(kSmolLm2);
  EXPECT_EQ(specs.size(), 2u + 9 * 30);
  EXPECT_EQ(head_index(kSmolLm2), embedding_index());
  EXPECT_TRUE(specs.front().tied);
  EXPECT_EQ(specs.back().name, "model.norm.weight");
  const ParameterRange last = parameters_of_group(kSmolLm2, parameter_groups(kSmolLm2) - 1);
  EXPECT_EQ(last.first, final_norm_index(kSmolLm2));
  EXPECT_EQ(last.count, 1);
}

// The golden file was written in the list's order, under Hugging Face's names and shapes.
TEST(Parameters, NamesOrderAndShapesAreThoseOfTheGoldenFile) {
  const SafetensorsReader file(posix_file_system(), golden_path("llama_tiny"));
  const std::vector<ParamSpec> specs = llama_parameters(load_golden("llama_tiny").config);
  ASSERT_EQ(specs.size(), 21u);
  for (size_t i = 0; i < specs.size(); ++i) {
    const ParamSpec& spec = specs[i];
    EXPECT_EQ(file.tensors()[i].name, spec.name);
    const auto shape =
        spec.rank() == 1 ? std::vector{spec.cols} : std::vector{spec.rows, spec.cols};
    EXPECT_EQ(file.tensors()[i].shape, shape) << spec.name;
  }
}

// docs/numerics.md "Streams": 0 embedding; 1 + 9 l + {attn_norm q k v o mlp_norm gate up down}; 1 +
// 9 L norm; 2 + 9 L head.
TEST(Parameters, TensorIds) {
  const LlamaConfig& config = kPaperModels[0].config;
  const std::vector<ParamSpec> specs = llama_parameters(config);
  ASSERT_EQ(specs.size(), 2u + 9 * 8 + 1);
  for (size_t i = 0; i < specs.size(); ++i) EXPECT_EQ(specs[i].tensor_id, i);
  EXPECT_EQ(specs[0].name, "model.embed_tokens.weight");
  const char* names[] = {"input_layernorm",  "self_attn.q_proj", "self_attn.k_proj",
                         "self_attn.v_proj", "self_attn.o_proj", "post_attention_layernorm",
                         "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};
  for (int64_t i = 0; i < params_per_layer(config); ++i)
    EXPECT_EQ(specs[size_t(layer_index(config, 5, LayerParam(i)))].name,
              fmt::format("model.layers.5.{}.weight", names[i]));
  EXPECT_EQ(layer_index(config, 5, LayerParam::kDown), 1 + 9 * 5 + 8);
  EXPECT_EQ(specs[size_t(final_norm_index(config))].name, "model.norm.weight");
  EXPECT_EQ(final_norm_index(config), 1 + 9 * 8);
  EXPECT_EQ(specs[size_t(head_index(config))].name, "lm_head.weight");
  EXPECT_EQ(head_index(config), 2 + 9 * 8);
}

// 5461 is stored as 5472: 11 more rows of gate and up, 11 more columns of down, nothing else.
TEST(Parameters, OnlyTheMlpIsPadded) {
  for (const ParamSpec& spec : llama_parameters(kPaperModels[3].config)) {
    const bool rows =
        spec.name.ends_with("gate_proj.weight") || spec.name.ends_with("up_proj.weight");
    const bool cols = spec.name.ends_with("down_proj.weight");
    EXPECT_EQ(spec.physical_rows, spec.rows + (rows ? 11 : 0)) << spec.name;
    EXPECT_EQ(spec.physical_cols, spec.cols + (cols ? 11 : 0)) << spec.name;
  }
}

TEST(Parameters, PadMultiple) {
  LlamaConfig config = paper_config(64, 33, 1);
  for (const auto& [multiple, padded] :
       {std::pair<int64_t, int64_t>{1, 33}, {2, 34}, {11, 33}, {16, 48}, {100, 100}}) {
    config.pad_multiple = multiple;
    EXPECT_EQ(padded_intermediate_size(config), padded) << multiple;
  }
}

}  // namespace
}  // namespace mpt::test
