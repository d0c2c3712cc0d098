#include "model/activations.h"

#include "model/parameters.h"

namespace mpt {
namespace {

LayerActivations allocate_layer(const LlamaConfig& config, const BatchShape& shape, DType dtype,
                                Allocator& allocator) {
  const int64_t n = shape.tokens(), c = config.hidden_size, f = padded_intermediate_size(config);
  const auto storage = [&](int64_t cols) { return allocator.tensor(Purpose::kActivations, dtype, n, cols); };
  const auto per_token = [&] { return allocator.tensor(Purpose::kActivations, DType::kF32, 1, n); };
  return {.residual = {},
          .attn_norm = storage(c),
          .attn_inv_rms = per_token(),
          .qkv = storage(3 * c),
          .log_sum_exp = allocator.tensor(Purpose::kActivations, DType::kF32,
                                          shape.rows * config.num_attention_heads, shape.seq_len),
          .attention = storage(c),
          .middle = storage(c),
          .mlp_norm = storage(c),
          .mlp_inv_rms = per_token(),
          .gate_up = storage(2 * f),
          .mlp = storage(f)};
}

}  // namespace

Activations plan_activations(const LlamaConfig& config, const BatchShape& shape, DType dtype,
                             Recompute recompute, Keep keep, Allocator& allocator) {
  const int64_t n = shape.tokens(), c = config.hidden_size;
  const auto storage = [&] { return allocator.tensor(Purpose::kActivations, dtype, n, c); };
  Activations acts;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const bool own = layer == 0 || (keep == Keep::kForBackward && recompute == Recompute::kNone);
    LayerActivations one = own ? allocate_layer(config, shape, dtype, allocator) : acts.layers.front();
    if (layer == 0 || keep == Keep::kForBackward) one.residual = storage();
    acts.layers.push_back(one);
  }
  acts.final_residual = storage();
  acts.final_norm = storage();
  acts.final_inv_rms = allocator.tensor(Purpose::kActivations, DType::kF32, 1, n);
  acts.branch = storage();
  return acts;
}

}  // namespace mpt
