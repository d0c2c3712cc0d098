// The parameter list of a LLaMA: the single definition of names, shapes, order and initialization.
//
// Order, and therefore tensor ids: embedding; per layer attn norm, q, k, v, o, mlp norm, gate, up,
// down, and with qk_norm the norms of q and k; final norm; head, unless tied to the embedding.
#pragma once

#include <vector>

#include "core/param_spec.h"
#include "model/llama_config.h"

namespace mpt {

// Offsets within a layer's parameters; the last two exist only with qk_norm.
enum class LayerParam : int64_t {
  kAttnNorm,
  kQ,
  kK,
  kV,
  kO,
  kMlpNorm,
  kGate,
  kUp,
  kDown,
  kQNorm,
  kKNorm
};
inline int64_t params_per_layer(const LlamaConfig& config) { return config.qk_norm ? 11 : 9; }

std::vector<ParamSpec> llama_parameters(const LlamaConfig& config);
// Rows of the matrix with the most; 0 if there is none.
int64_t most_rows(const std::vector<ParamSpec>& specs);

// Positions in the parameter list.
inline int64_t embedding_index() { return 0; }
inline int64_t layer_index(const LlamaConfig& config, int64_t layer, LayerParam which) {
  return 1 + params_per_layer(config) * layer + int64_t(which);
}
inline int64_t final_norm_index(const LlamaConfig& config) {
  return 1 + params_per_layer(config) * config.num_hidden_layers;
}
inline int64_t head_index(const LlamaConfig& config) {
  return config.tie_word_embeddings ? embedding_index() : final_norm_index(config) + 1;
}

// Groups of parameters that are read, and get gradients, together: 0 is the embedding, 1 + l layer
// l, the last one final norm and head. Groups are consecutive in the list. A tied matrix is in
// group 0, which is read first and whose gradient is complete last.
inline int64_t parameter_groups(const LlamaConfig& config) { return config.num_hidden_layers + 2; }
struct ParameterRange {
  int64_t first = 0, count = 0;
};
ParameterRange parameters_of_group(const LlamaConfig& config, int64_t group);

// Stored width of the MLP: intermediate_size rounded up to pad_multiple.
int64_t padded_intermediate_size(const LlamaConfig& config);

}  // namespace mpt
