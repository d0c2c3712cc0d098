#include "model/parameters.h"

#include <algorithm>

#include <fmt/format.h>

namespace mpt {
namespace {

ParamSpec norm(std::string name, int64_t width) {
  return {.name = std::move(name),
          .kind = ParamKind::kNorm,
          .rows = 1,
          .cols = width,
          .physical_rows = 1,
          .physical_cols = width};
}

ParamSpec matrix(std::string name, ParamKind kind, int64_t rows, int64_t cols) {
  return {.name = std::move(name),
          .kind = kind,
          .rows = rows,
          .cols = cols,
          .physical_rows = rows,
          .physical_cols = cols};
}

void add_layer(std::vector<ParamSpec>& specs, const LlamaConfig& config, int64_t layer) {
  const int64_t hidden = config.hidden_size, inter = config.intermediate_size;
  const int64_t queries = config.query_width(), keys = config.key_value_width();
  const int64_t padded = padded_intermediate_size(config);
  const auto linear = [&](std::string_view name, int64_t rows, int64_t cols) {
    return matrix(fmt::format("model.layers.{}.{}.weight", layer, name), ParamKind::kLinear, rows,
                  cols);
  };
  specs.push_back(norm(fmt::format("model.layers.{}.input_layernorm.weight", layer), hidden));
  specs.push_back(linear("self_attn.q_proj", queries, hidden));
  specs.back().fused = 3;
  specs.push_back(linear("self_attn.k_proj", keys, hidden));
  specs.push_back(linear("self_attn.v_proj", keys, hidden));
  specs.push_back(linear("self_attn.o_proj", hidden, queries));
  specs.push_back(
      norm(fmt::format("model.layers.{}.post_attention_layernorm.weight", layer), hidden));
  specs.push_back(linear("mlp.gate_proj", inter, hidden));
  specs.back().fused = 2;
  specs.back().physical_rows = padded;
  specs.push_back(linear("mlp.up_proj", inter, hidden));
  specs.back().physical_rows = padded;
  specs.push_back(linear("mlp.down_proj", hidden, inter));
  specs.back().physical_cols = padded;
  if (!config.qk_norm) return;
  for (const char* which : {"q_norm", "k_norm"})
    specs.push_back(
        norm(fmt::format("model.layers.{}.self_attn.{}.weight", layer, which), config.head_dim()));
}

}  // namespace

int64_t padded_intermediate_size(const LlamaConfig& config) {
  return (config.intermediate_size + config.pad_multiple - 1) / config.pad_multiple *
         config.pad_multiple;
}

ParameterRange parameters_of_group(const LlamaConfig& config, int64_t group) {
  if (group == 0) return {embedding_index(), 1};
  if (group == parameter_groups(config) - 1)
    return {final_norm_index(config), config.tie_word_embeddings ? 1 : 2};
  return {layer_index(config, group - 1, LayerParam::kAttnNorm), params_per_layer(config)};
}

std::vector<ParamSpec> llama_parameters(const LlamaConfig& config) {
  std::vector<ParamSpec> specs;
  specs.push_back(matrix("model.embed_tokens.weight", ParamKind::kEmbedding, config.vocab_size,
                         config.hidden_size));
  specs.back().tied = config.tie_word_embeddings;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    add_layer(specs, config, layer);
  specs.push_back(norm("model.norm.weight", config.hidden_size));
  if (!config.tie_word_embeddings)
    specs.push_back(
        matrix("lm_head.weight", ParamKind::kHead, config.vocab_size, config.hidden_size));
  for (size_t i = 0; i < specs.size(); ++i) specs[i].tensor_id = static_cast<uint32_t>(i);
  return specs;
}

int64_t most_rows(const std::vector<ParamSpec>& specs) {
  int64_t most = 0;
  for (const ParamSpec& spec : specs) most = std::max(most, spec.rows);
  return most;
}

}  // namespace mpt
