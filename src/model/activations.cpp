#include "model/activations.h"

#include <algorithm>

#include "model/parameters.h"
#include "model/quantized_matrix.h"

namespace mpt {
namespace {

class Planner {
 public:
  Planner(const LlamaConfig& config, const ActivationOptions& options, Allocator& allocator)
      : config_(config), options_(options), allocator_(allocator) {
    const int64_t widest = std::max({config.hidden_size, config.query_width(), width()});
    if (rows_of_k()) codes_ = tokens(DType::kE4M3, widest);
  }

  [[nodiscard]] LayerActivations layer() const {
    const int64_t c = config_.hidden_size, f = width(), queries = config_.query_width();
    const Tensor attention = tokens(options_.storage, queries);
    return {.residual = {},
            .attn_norm = operand(c),
            .attn_inv_rms = per_token(),
            .qkv = tokens(options_.storage, config_.qkv_width()),
            .qk_before_norm = config_.qk_norm
                                  ? tokens(options_.storage, queries + config_.key_value_width())
                                  : Tensor{},
            .qk_inv_rms = config_.qk_norm ? tokens(DType::kF32, config_.num_attention_heads +
                                                                    config_.key_value_heads())
                                          : Tensor{},
            .log_sum_exp = allocator_.tensor(kActivationMemory, DType::kF32,
                                             options_.shape.rows * config_.num_attention_heads,
                                             options_.shape.seq_len),
            .attention = attention,
            .attention_operand = options_.fp8 ? operand(queries) : QuantizedMatrix{attention},
            .middle = tokens(options_.storage, c),
            .mlp_norm = operand(c),
            .mlp_inv_rms = per_token(),
            .gate_up = tokens(options_.storage, 2 * f),
            .mlp = operand(f)};
  }
  [[nodiscard]] Tensor residual() const { return tokens(options_.storage, config_.hidden_size); }

  void add_shared(Activations& acts) const {
    const int64_t c = config_.hidden_size;
    const bool fp8_head = options_.fp8 && options_.fp8->fp8_lm_head;
    acts.final_residual = residual();
    acts.final_norm = fp8_head ? operand(c) : QuantizedMatrix{tokens(options_.storage, c)};
    acts.final_inv_rms = per_token();
    acts.branch = residual();
  }

 private:
  [[nodiscard]] int64_t width() const { return padded_intermediate_size(config_); }
  [[nodiscard]] bool rows_of_k() const {
    return options_.fp8 && options_.fp8_layout == Fp8Layout::kRowsOfK;
  }
  // Row-major codes are needed only between their cast and the GEMM, so only one operand's exist at
  // a time.
  [[nodiscard]] QuantizedMatrix operand(int64_t cols) const {
    if (!rows_of_k()) return {tokens(options_.fp8 ? DType::kE4M3 : options_.storage, cols)};
    const Tensor values{codes_.data, codes_.dtype, codes_.rows, cols, cols};
    if (options_.keep == Keep::kNothing) return {values};
    return {values,
            allocator_.tensor(kActivationMemory, DType::kE4M3, cols, options_.shape.tokens())};
  }
  [[nodiscard]] Tensor tokens(DType dtype, int64_t cols) const {
    return allocator_.tensor(kActivationMemory, dtype, options_.shape.tokens(), cols);
  }
  [[nodiscard]] Tensor per_token() const {
    return allocator_.tensor(kActivationMemory, DType::kF32, 1, options_.shape.tokens());
  }

  const LlamaConfig& config_;
  const ActivationOptions& options_;
  Allocator& allocator_;
  Tensor codes_;  // [N, max(C, H D, F)] e4m3, if row-major codes are not kept
};

}  // namespace

Activations plan_activations(const LlamaConfig& config, const ActivationOptions& options,
                             Allocator& allocator) {
  const Planner planner(config, options, allocator);
  Activations acts;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const bool kept = options.keep == Keep::kForBackward;
    const bool own = layer == 0 || (kept && options.recompute == Recompute::kNone);
    LayerActivations one = own ? planner.layer() : acts.layers.front();
    if (layer == 0 || kept) one.residual = planner.residual();
    acts.layers.push_back(one);
  }
  planner.add_shared(acts);
  return acts;
}

}  // namespace mpt
