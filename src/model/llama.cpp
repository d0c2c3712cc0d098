#include "model/llama.h"

#include <algorithm>
#include <numeric>

#include "core/bf16.h"
#include "model/formulas/cross_entropy.h"
#include "model/parameters.h"

namespace mpt {

int64_t default_loss_chunk_rows(const LlamaConfig& config, const BatchShape& micro_batch) {
  constexpr int64_t kLogits = int64_t{16} << 20, kMultiple = 16;
  const int64_t rows = std::max(kLogits / config.vocab_size / kMultiple, int64_t{1}) * kMultiple;
  return std::min(rows, micro_batch.tokens());
}

namespace {

void check_options(const LlamaOptions& options, const WeightStore& weights) {
  const BatchShape& shape = options.micro_batch;
  check(
      shape.rows > 0 && shape.seq_len > 0 && options.loss_chunk_rows > 0,
      "a model for micro-batches of {} rows of {} tokens, {} tokens' logits at a time; each must be positive",
      shape.rows, shape.seq_len, options.loss_chunk_rows);
  check(options.storage == weights.options().storage, "{} activations over {} weights",
        name_of(options.storage), name_of(weights.options().storage));
  check(options.keep == Keep::kNothing || weights.has_gradients(),
        "training with weights that have no gradients");
}

LinearsOptions linears_options(const LlamaOptions& options, const WeightStore& weights) {
  check_options(options, weights);
  return {.micro_batch = options.micro_batch,
          .storage = options.storage,
          .loss_chunk_rows = options.loss_chunk_rows,
          .keep = options.keep,
          .fp8 = options.fp8};
}

void check_range(std::string_view what, std::span<const int32_t> values, int32_t first, int64_t end) {
  const auto outside = [&](int32_t x) { return x < first || x >= end; };
  const auto found = std::find_if(values.begin(), values.end(), outside);
  if (found == values.end()) return;
  check(false, "{} {} at position {} of a micro-batch; expected {} to {}", what, *found,
        found - values.begin(), first, end - 1);
}

}  // namespace

Llama::Llama(const LlamaConfig& config, const LlamaOptions& options, const WeightStore& weights,
             Device& device, Allocator& allocator)
    : config_(config),
      options_(options),
      weights_(weights),
      device_(device),
      ops_(make_llama_ops(device)),
      linears_(config, linears_options(options, weights), weights, device, allocator),
      acts_(plan_activations(config,
                             {.shape = options.micro_batch,
                              .storage = options.storage,
                              .recompute = options.recompute,
                              .keep = options.keep,
                              .fp8 = options.fp8},
                             allocator)),
      rope_(config, options.micro_batch.seq_len, device, allocator) {
  const int64_t n = options.micro_batch.tokens();
  tokens_ = allocator.tensor(Purpose::kData, DType::kI32, 1, n);
  targets_ = allocator.tensor(Purpose::kData, DType::kI32, 1, n);
  losses_ = allocator.tensor(Purpose::kLogits, DType::kF32, 1, n);
  logits_ = allocator.tensor(Purpose::kLogits, options.storage, options.loss_chunk_rows, config.vocab_size);
  if (tokens_.data != nullptr) host_losses_.resize(size_t(n));  // a plan takes no memory of its own
  if (options.keep == Keep::kForBackward) allocate_gradient_scratch(allocator);
  AttentionShape most = attention_shape();
  most.batch = options.micro_batch.rows;
  device.attention().reserve(allocator, most);
}

void Llama::allocate_gradient_scratch(Allocator& allocator) {
  const int64_t n = options_.micro_batch.tokens(), c = config_.hidden_size,
                f = padded_intermediate_size(config_);
  const auto scratch = [&](DType dtype, int64_t rows, int64_t cols) {
    return allocator.tensor(Purpose::kScratch, dtype, rows, cols);
  };
  d_residual_ = scratch(options_.storage, n, c);
  d_branch_ = scratch(options_.storage, n, c);
  d_wide_ = scratch(options_.storage, n, std::max(3 * c, f));
  d_gain_partial_ = scratch(DType::kF32, ops_->norm_chunks(n), c);
  first_use_ = allocator.tensor(Purpose::kData, DType::kI32, 1, config_.vocab_size + 1);
  uses_ = allocator.tensor(Purpose::kData, DType::kI32, 1, n);
  if (uses_.data == nullptr) return;
  host_first_.resize(size_t(config_.vocab_size) + 2);
  host_uses_.resize(size_t(n));
}

// --- views -----------------------------------------------------------------------------------------------

AttentionShape Llama::attention_shape() const {
  return {rows_, options_.micro_batch.seq_len, config_.num_attention_heads, config_.head_dim()};
}

// Tensors are planned for the largest micro-batch; a smaller one uses their first rows (or columns, if per
// token).
Tensor Llama::live(const Tensor& t) const {
  const int64_t n = rows_ * options_.micro_batch.seq_len;
  return t.rows == 1 && t.cols == options_.micro_batch.tokens() ? t.columns(0, n) : t.row_range(0, n);
}

Tensor Llama::wide_scratch(int64_t cols) const {
  return live({d_wide_.data, d_wide_.dtype, d_wide_.rows, cols, cols});
}

// --- pieces ----------------------------------------------------------------------------------------------

// The live rows of an operand from those of its source.
void Llama::cast_input(int64_t linear, const Tensor& source, const Tensor& operand) {
  if (linears_.in_fp8(linear)) linears_.cast_input(linear, live(source), live(operand), cast_);
}

Fp8CastKind Llama::evaluation_cast() const {
  const bool fold = options_.fp8 && options_.fp8->fp8_eval_amax == EvalAmax::kFold;
  return fold ? Fp8CastKind::kFold : Fp8CastKind::kNoFold;
}

void Llama::norm(const Tensor& residual, const Tensor& branch, const Tensor& sum, const Tensor& out,
                 const Tensor& inv_rms, int64_t gain) {
  ops_->norm_forward({.residual = live(residual),
                      .branch = branch.data == nullptr ? Tensor{} : live(branch),
                      .sum = sum.data == nullptr ? Tensor{} : live(sum),
                      .out = live(out),
                      .inv_rms = live(inv_rms),
                      .gain = weights_.compute(gain),
                      .eps = float(config_.rms_norm_eps)});
}

void Llama::rotate(const Tensor& qkv, float direction) {
  ops_->rope({.qkv = qkv,
              .cosine = rope_.cosine,
              .sine = rope_.sine,
              .heads = config_.num_attention_heads,
              .head_dim = config_.head_dim(),
              .seq_len = options_.micro_batch.seq_len,
              .direction = direction});
}

// --- forward ---------------------------------------------------------------------------------------------

void Llama::load(const TokenBatch& batch) {
  const int64_t seq_len = options_.micro_batch.seq_len, n = int64_t(batch.tokens.size());
  check(n % seq_len == 0 && n > 0 && n <= options_.micro_batch.tokens() &&
            batch.targets.size() == batch.tokens.size(),
        "micro-batch of {} tokens and {} targets; expected whole rows of {}, at most {}", n,
        batch.targets.size(), seq_len, options_.micro_batch.rows);
  check_range("token", batch.tokens, 0, config_.vocab_size);
  check_range("target", batch.targets, kNoTarget, config_.vocab_size);
  rows_ = n / seq_len;
  host_tokens_ = batch.tokens;
  device_.upload(reinterpret_cast<const std::byte*>(batch.tokens.data()), tokens_.columns(0, n));
  device_.upload(reinterpret_cast<const std::byte*>(batch.targets.data()), targets_.columns(0, n));
}

void Llama::forward(Fp8CastKind kind) {
  cast_ = kind;
  linears_.begin_forward(kind);
  ops_->embedding_forward(weights_.compute(embedding_index()), live(tokens_), live(acts_.layers[0].residual));
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) forward_layer(layer, Pass::kFirst);
  norm(acts_.layers.back().middle, acts_.branch, acts_.final_residual, acts_.final_norm, acts_.final_inv_rms,
       final_norm_index(config_));
  cast_input(head_linear(config_), acts_.final_norm, final_operand());
}

// The block's output is left as `middle` and `branch`; the next norm adds them up. The last product is not
// needed when the block is computed again.
void Llama::forward_layer(int64_t layer, Pass pass) {
  const LayerActivations& a = acts_.layers[size_t(layer)];
  const auto index = [layer](Linear which) { return linear_index(layer, which); };
  const Tensor& attn_norm = source_of(a.attn_norm, acts_.norm_source);
  if (layer == 0 || pass == Pass::kRecompute)
    norm(a.residual, {}, {}, attn_norm, a.attn_inv_rms, layer_index(layer, LayerParam::kAttnNorm));
  else
    norm(acts_.layers[size_t(layer - 1)].middle, acts_.branch, a.residual, attn_norm, a.attn_inv_rms,
         layer_index(layer, LayerParam::kAttnNorm));
  cast_input(index(Linear::kQkv), attn_norm, a.attn_norm);
  linears_.forward(index(Linear::kQkv), live(a.attn_norm), live(a.qkv));
  rotate(live(a.qkv), +1.0f);
  device_.attention().forward({.shape = attention_shape(),
                               .qkv = live(a.qkv),
                               .out = live(a.attention),
                               .log_sum_exp = a.log_sum_exp});
  cast_input(index(Linear::kO), a.attention, attention_operand(a));
  linears_.forward(index(Linear::kO), live(attention_operand(a)), live(acts_.branch));
  const Tensor& mlp_norm = source_of(a.mlp_norm, acts_.norm_source);
  norm(a.residual, acts_.branch, a.middle, mlp_norm, a.mlp_inv_rms, layer_index(layer, LayerParam::kMlpNorm));
  cast_input(index(Linear::kGateUp), mlp_norm, a.mlp_norm);
  linears_.forward(index(Linear::kGateUp), live(a.mlp_norm), live(a.gate_up));
  const Tensor& mlp = source_of(a.mlp, acts_.mlp_source);
  ops_->swiglu_forward(live(a.gate_up), live(mlp));
  cast_input(index(Linear::kDown), mlp, a.mlp);
  if (pass == Pass::kRecompute) return;
  linears_.forward(index(Linear::kDown), live(a.mlp), live(acts_.branch));
}

// --- loss ------------------------------------------------------------------------------------------------

// Losses of all rows, summed in FP64 in their order; with `backward`, also the head's and final norm's
// gradients.
double Llama::loss_of(const BackwardOptions* backward) {
  const int64_t n = rows_ * options_.micro_batch.seq_len;
  for (int64_t first = 0; first < n; first += options_.loss_chunk_rows) loss_chunk(first, backward);
  device_.download(live(losses_), reinterpret_cast<std::byte*>(host_losses_.data()));
  return std::accumulate(host_losses_.begin(), host_losses_.begin() + n, 0.0);
}

void Llama::loss_chunk(int64_t first, const BackwardOptions* backward) {
  const int64_t rows = std::min(options_.loss_chunk_rows, rows_ * options_.micro_batch.seq_len - first);
  const Tensor x = final_operand().row_range(first, rows), logits = logits_.row_range(0, rows);
  const int64_t head = head_linear(config_);
  linears_.forward(head, x, logits);
  ops_->cross_entropy({.logits = logits,
                       .targets = targets_.columns(first, rows),
                       .losses = losses_.columns(first, rows),
                       .gradient_scale = backward == nullptr ? 0.0f : backward->gradient_scale});
  if (backward == nullptr) return;
  const Accumulate accumulate = first > 0 ? Accumulate::kYes : backward->accumulate;
  linears_.backward(
      head, {.d_y = logits, .x = x, .d_x = d_branch_.row_range(first, rows), .accumulate = accumulate});
}

double Llama::evaluate(const TokenBatch& batch) {
  load(batch);
  forward(evaluation_cast());
  return loss_of(nullptr);
}

std::vector<float> Llama::logits(std::span<const int32_t> tokens) {
  const std::vector<int32_t> no_targets(tokens.size(), -1);
  load({tokens, no_targets});
  forward(evaluation_cast());
  const int64_t n = int64_t(tokens.size()), vocab = config_.vocab_size;
  std::vector<float> all(size_t(n * vocab));
  std::vector<bf16> narrow(size_t(options_.storage == DType::kBF16 ? options_.loss_chunk_rows * vocab : 0));
  for (int64_t first = 0; first < n; first += options_.loss_chunk_rows) {
    const int64_t rows = std::min(options_.loss_chunk_rows, n - first);
    const Tensor chunk = logits_.row_range(0, rows);
    linears_.forward(head_linear(config_), final_operand().row_range(first, rows), chunk);
    float* target = all.data() + first * vocab;
    if (options_.storage == DType::kF32) {
      device_.download(chunk, reinterpret_cast<std::byte*>(target));
    } else {
      device_.download(chunk, reinterpret_cast<std::byte*>(narrow.data()));
      std::transform(narrow.begin(), narrow.begin() + rows * vocab, target,
                     [](bf16 x) { return to_float(x); });
    }
  }
  return all;
}

// --- backward --------------------------------------------------------------------------------------------

double Llama::forward_backward(const TokenBatch& batch, const BackwardOptions& options) {
  check(options_.keep == Keep::kForBackward, "this model was planned for evaluation only");
  load(batch);
  forward(Fp8CastKind::kFold);
  const double loss = loss_of(&options);
  linears_.end_forward();
  cast_ = Fp8CastKind::kAgain;
  backward(options.accumulate);
  linears_.end_backward();
  return loss;
}

// d_branch_ holds the gradient of the final norm's output.
void Llama::backward(Accumulate accumulate) {
  ops_->zero(live(d_residual_));
  backward_norm(acts_.final_residual, acts_.final_inv_rms, final_norm_index(config_), accumulate);
  for (int64_t layer = config_.num_hidden_layers - 1; layer >= 0; --layer) {
    if (options_.recompute == Recompute::kBlock) forward_layer(layer, Pass::kRecompute);
    backward_mlp(layer, accumulate);
    backward_attention(layer, accumulate);
  }
  backward_embedding(accumulate);
}

void Llama::backward_norm(const Tensor& x, const Tensor& inv_rms, int64_t gain, Accumulate accumulate) {
  ops_->norm_backward({.d_out = live(d_branch_),
                       .x = live(x),
                       .inv_rms = live(inv_rms),
                       .gain = weights_.compute(gain),
                       .d_x = live(d_residual_),
                       .d_gain_partial = d_gain_partial_,
                       .d_gain = weights_.gradient(gain),
                       .accumulate = accumulate});
}

void Llama::backward_mlp(int64_t layer, Accumulate accumulate) {
  const LayerActivations& a = acts_.layers[size_t(layer)];
  const Tensor d_mlp = wide_scratch(a.mlp.cols);
  linears_.backward(linear_index(layer, Linear::kDown),
                    {.d_y = live(d_residual_), .x = live(a.mlp), .d_x = d_mlp, .accumulate = accumulate});
  ops_->swiglu_backward(live(a.gate_up), d_mlp);
  linears_.backward(
      linear_index(layer, Linear::kGateUp),
      {.d_y = live(a.gate_up), .x = live(a.mlp_norm), .d_x = live(d_branch_), .accumulate = accumulate});
  backward_norm(a.middle, a.mlp_inv_rms, layer_index(layer, LayerParam::kMlpNorm), accumulate);
}

void Llama::backward_attention(int64_t layer, Accumulate accumulate) {
  const LayerActivations& a = acts_.layers[size_t(layer)];
  const Tensor d_qkv = wide_scratch(a.qkv.cols);
  // The cast is made again rather than kept beside what attention needs anyway.
  cast_input(linear_index(layer, Linear::kO), a.attention, attention_operand(a));
  linears_.backward(linear_index(layer, Linear::kO), {.d_y = live(d_residual_),
                                                      .x = live(attention_operand(a)),
                                                      .d_x = live(d_branch_),
                                                      .accumulate = accumulate});
  device_.attention().backward({.shape = attention_shape(),
                                .qkv = live(a.qkv),
                                .out = live(a.attention),
                                .log_sum_exp = a.log_sum_exp,
                                .d_out = live(d_branch_),
                                .d_qkv = d_qkv});
  rotate(d_qkv, -1.0f);
  linears_.backward(linear_index(layer, Linear::kQkv),
                    {.d_y = d_qkv, .x = live(a.attn_norm), .d_x = live(d_branch_), .accumulate = accumulate});
  backward_norm(a.residual, a.attn_inv_rms, layer_index(layer, LayerParam::kAttnNorm), accumulate);
}

// A counting sort of the tokens: which positions used each row of the table, in ascending order.
void Llama::backward_embedding(Accumulate accumulate) {
  std::fill(host_first_.begin(), host_first_.end(), 0);
  for (const int32_t token : host_tokens_) ++host_first_[size_t(token) + 2];
  for (size_t v = 2; v < host_first_.size(); ++v) host_first_[v] += host_first_[v - 1];
  for (size_t i = 0; i < host_tokens_.size(); ++i)
    host_uses_[size_t(host_first_[size_t(host_tokens_[i]) + 1]++)] = int32_t(i);
  device_.upload(reinterpret_cast<const std::byte*>(host_first_.data()), first_use_);
  device_.upload(reinterpret_cast<const std::byte*>(host_uses_.data()), live(uses_));
  ops_->embedding_backward({.d_out = live(d_residual_),
                            .first = first_use_,
                            .uses = live(uses_),
                            .d_table = weights_.gradient(embedding_index()),
                            .accumulate = accumulate});
}

void Llama::finish_gradients() {
  for (int64_t i = 0; i < int64_t(weights_.specs().size()); ++i)
    if (weights_.rounded_later(i)) ops_->round_to_bf16(weights_.gradient(i));
  linears_.end_step();
}

}  // namespace mpt
