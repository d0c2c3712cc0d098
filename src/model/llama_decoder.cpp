#include "model/llama_decoder.h"

#include <algorithm>

#include "core/bf16.h"
#include "model/activations.h"
#include "model/parameters.h"

namespace mpt {

LlamaDecoder::LlamaDecoder(const LlamaConfig& config, const DecoderOptions& options,
                           const WeightStore& weights, Device& device, Allocator& allocator)
    : config_(config),
      options_(options),
      weights_(weights),
      device_(device),
      ops_(make_ops<LlamaOps>(device.stream())),
      rope_(config, options.max_positions, device, allocator) {
  check(options.max_positions > 0, "a decoder needs at least one position, found {}",
        options.max_positions);
  allocate(allocator);
  device.gemm().reserve(allocator, gemms());
}

void LlamaDecoder::allocate(Allocator& allocator) {
  const int64_t c = config_.hidden_size, f = padded_intermediate_size(config_);
  const auto row = [&](int64_t cols) {
    return allocator.tensor(kActivationMemory, options_.storage, 1, cols);
  };
  const auto cache = [&] {
    return allocator.tensor(kActivationMemory, options_.storage, options_.max_positions,
                            config_.key_value_width());
  };
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer)
    caches_.push_back({cache(), cache()});
  token_ = allocator.tensor(kDataMemory, DType::kI32, 1, 1);
  residual_ = row(c);
  middle_ = row(c);
  normed_ = row(c);
  inv_rms_ = allocator.tensor(kActivationMemory, DType::kF32, 1, 1);
  qkv_ = row(config_.qkv_width());
  if (config_.qk_norm) {
    const int64_t heads = config_.num_attention_heads + config_.key_value_heads();
    qk_before_norm_ = row(heads * config_.head_dim());
    qk_inv_rms_ = allocator.tensor(kActivationMemory, DType::kF32, 1, heads);
  }
  scores_ = allocator.tensor(kScratchMemory, DType::kF32, config_.num_attention_heads,
                             options_.max_positions);
  attention_ = row(config_.query_width());
  branch_ = row(c);
  gate_up_ = row(2 * f);
  mlp_ = row(f);
  logits_ = allocator.tensor(kLogitMemory, options_.storage, 1, config_.vocab_size);
}

void LlamaDecoder::rewind(int64_t position) {
  check(position >= 0 && position <= position_, "rewinding to token {} of {}", position, position_);
  position_ = position;
}

std::vector<GemmCall> LlamaDecoder::gemms() const {
  const auto gemm = [](const Tensor& x, const Tensor& weight, const Tensor& y) {
    return GemmCall{.a = x, .b = weight, .d = y, .transpose_b = Transpose::kYes};
  };
  return {
      gemm(normed_, weights_.compute_fused(layer_index(config_, 0, LayerParam::kQ)), qkv_),
      gemm(attention_, weights_.compute(layer_index(config_, 0, LayerParam::kO)), branch_),
      gemm(normed_, weights_.compute_fused(layer_index(config_, 0, LayerParam::kGate)), gate_up_),
      gemm(mlp_, weights_.compute(layer_index(config_, 0, LayerParam::kDown)), branch_),
      gemm(normed_, weights_.compute(head_index(config_)), logits_)};
}

// y = x W^T
void LlamaDecoder::linear(const Tensor& x, const Tensor& weight, const Tensor& y) {
  device_.gemm().run({.a = x, .b = weight, .d = y, .transpose_b = Transpose::kYes});
}

void LlamaDecoder::norm(const Tensor& residual, const Tensor& branch, const Tensor& sum,
                        int64_t gain) {
  ops_->norm_forward({.residual = residual,
                      .branch = branch,
                      .sum = sum,
                      .out = normed_,
                      .inv_rms = inv_rms_,
                      .gain = weights_.compute(gain),
                      .eps = float(config_.rms_norm_eps)});
}

void LlamaDecoder::norm_heads(int64_t layer) {
  const auto gain = [&](LayerParam which) {
    return weights_.compute(layer_index(config_, layer, which));
  };
  ops_->head_norm_forward({.qkv = qkv_,
                           .before = qk_before_norm_,
                           .inv_rms = qk_inv_rms_,
                           .query_gain = gain(LayerParam::kQNorm),
                           .key_gain = gain(LayerParam::kKNorm),
                           .query_heads = config_.num_attention_heads,
                           .eps = float(config_.rms_norm_eps)});
}

// Leaves the block's output as `middle` and `branch`; the next norm adds them.
void LlamaDecoder::forward_layer(int64_t layer) {
  const auto param = [&](LayerParam which) { return layer_index(config_, layer, which); };
  const Cache& cache = caches_[size_t(layer)];
  if (layer == 0)
    norm(residual_, {}, {}, param(LayerParam::kAttnNorm));
  else
    norm(middle_, branch_, residual_, param(LayerParam::kAttnNorm));
  linear(normed_, weights_.compute_fused(param(LayerParam::kQ)), qkv_);
  if (config_.qk_norm) norm_heads(layer);
  ops_->rope({.qkv = qkv_,
              .cosine = rope_.cosine,
              .sine = rope_.sine,
              .rotated_heads = config_.num_attention_heads + config_.key_value_heads(),
              .head_dim = config_.head_dim(),
              .seq_len = 1,
              .first_position = position_});
  ops_->cached_attention({.qkv = qkv_,
                          .keys = cache.keys,
                          .values = cache.values,
                          .scores = scores_,
                          .out = attention_,
                          .heads = config_.num_attention_heads,
                          .key_value_heads = config_.key_value_heads(),
                          .head_dim = config_.head_dim(),
                          .past = position_});
  linear(attention_, weights_.compute(param(LayerParam::kO)), branch_);
  norm(residual_, branch_, middle_, param(LayerParam::kMlpNorm));
  linear(normed_, weights_.compute_fused(param(LayerParam::kGate)), gate_up_);
  ops_->swiglu_forward(gate_up_, mlp_);
  linear(mlp_, weights_.compute(param(LayerParam::kDown)), branch_);
}

void LlamaDecoder::forward(int32_t token) {
  device_.upload(reinterpret_cast<const std::byte*>(&token), token_);
  ops_->embedding_forward(weights_.compute(embedding_index()), token_, residual_);
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) forward_layer(layer);
  norm(middle_, branch_, residual_, final_norm_index(config_));
  linear(normed_, weights_.compute(head_index(config_)), logits_);
}

std::vector<float> LlamaDecoder::next_logits(int32_t token) {
  if (position_ == options_.max_positions)
    throw error("the context is full: it holds {} tokens", options_.max_positions);
  check(token >= 0 && token < config_.vocab_size, "token {} is outside a vocabulary of {}", token,
        config_.vocab_size);
  forward(token);
  ++position_;
  std::vector<float> logits(size_t(config_.vocab_size));
  if (options_.storage == DType::kF32) {
    device_.download(logits_, reinterpret_cast<std::byte*>(logits.data()));
    return logits;
  }
  std::vector<bf16> narrow(logits.size());
  device_.download(logits_, reinterpret_cast<std::byte*>(narrow.data()));
  std::transform(narrow.begin(), narrow.end(), logits.begin(), [](bf16 x) { return to_float(x); });
  return logits;
}

}  // namespace mpt
