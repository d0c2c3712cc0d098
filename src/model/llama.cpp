#include "model/llama.h"

#include <algorithm>
#include <numeric>

#include "core/bf16.h"
#include "device/device.h"
#include "model/formulas/cross_entropy.h"
#include "model/parameters.h"

namespace mpt {

int64_t default_loss_chunk_rows(const LlamaConfig& config, const BatchShape& micro_batch,
                                Backend backend) {
  constexpr int64_t kMultiple = 16;
  const int64_t logits = int64_t{backend == Backend::kCuda ? 256 : 16} << 20;
  const int64_t rows = std::max(logits / config.vocab_size / kMultiple, int64_t{1}) * kMultiple;
  return std::min(rows, micro_batch.tokens());
}

namespace {

void check_options(const LlamaOptions& options, const WeightStore& weights) {
  const BatchShape& shape = options.micro_batch;
  check(shape.rows > 0 && shape.seq_len > 0 && options.loss_chunk_rows > 0 &&
            options.micro_batches > 0,
        "{} micro-batches of {} rows of {} tokens, with the logits of {} tokens at a time; each "
        "must be positive",
        options.micro_batches, shape.rows, shape.seq_len, options.loss_chunk_rows);
  check(options.storage == weights.options().storage, "activations in {}, but weights read as {}",
        name_of(options.storage), name_of(weights.options().storage));
  check(options.keep == Keep::kNothing || weights.has_gradients(),
        "training needs weights with gradients");
}

LinearsOptions linears_options(const LlamaOptions& options, const WeightStore& weights) {
  check_options(options, weights);
  return {.micro_batch = options.micro_batch,
          .storage = options.storage,
          .loss_chunk_rows = options.loss_chunk_rows,
          .keep = options.keep,
          .fp8 = options.fp8,
          .multiply = options.multiply,
          .weight_codes = options.weight_codes};
}

void check_range(std::string_view what, std::span<const int32_t> values, int32_t first,
                 int64_t end) {
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
      ops_(make_ops<LlamaOps>(device.stream())),
      linears_(config, linears_options(options, weights), weights, device, allocator),
      acts_(plan_activations(config,
                             {.shape = options.micro_batch,
                              .storage = options.storage,
                              .recompute = options.recompute,
                              .keep = options.keep,
                              .fp8 = options.fp8,
                              .fp8_layout = device.gemm().fp8_layout()},
                             allocator)),
      rope_(config, options.micro_batch.seq_len, device, allocator) {
  const int64_t n = options.micro_batch.tokens(), most = options.micro_batches;
  tokens_ = allocator.pinned(kDataMemory, DType::kI32, most, n);
  targets_ = allocator.pinned(kDataMemory, DType::kI32, most, n);
  if (options.attention == AttentionScope::kDocument)
    document_begin_ = allocator.pinned(kDataMemory, DType::kI32, most, n);
  gradient_scale_ = allocator.pinned(kDataMemory, DType::kF32, 1, 1);
  loss_sums_ = allocator.pinned(kLogitMemory, DType::kF64, 1, most);
  losses_ = allocator.tensor(kLogitMemory, DType::kF32, 1, n);
  logits_ =
      allocator.tensor(kLogitMemory, options.storage, options.loss_chunk_rows, config.vocab_size);
  if (tokens_.host != nullptr) host_losses_.resize(size_t(n));  // planning allocates no memory
  if (options.keep == Keep::kForBackward) allocate_gradient_scratch(allocator);
  AttentionShape attention = attention_shape();
  attention.batch = options.micro_batch.rows;
  device.attention().reserve(allocator, attention, options.storage);
}

void Llama::allocate_gradient_scratch(Allocator& allocator) {
  const int64_t n = options_.micro_batch.tokens(), c = config_.hidden_size,
                f = padded_intermediate_size(config_);
  const int64_t gains = std::max(c, config_.qk_norm ? 2 * config_.head_dim() : 0);
  const auto scratch = [&](DType dtype, int64_t rows, int64_t cols) {
    return allocator.tensor(kScratchMemory, dtype, rows, cols);
  };
  d_residual_ = scratch(options_.storage, n, c);
  d_branch_ = scratch(options_.storage, n, std::max(c, config_.query_width()));
  d_wide_ = scratch(options_.storage, n, std::max(config_.qkv_width(), f));
  d_gain_partial_ = scratch(DType::kF32, ops_->norm_chunks(n), gains);
  const int64_t most = options_.micro_batches;
  first_use_ = allocator.tensor(kDataMemory, DType::kI32, 1, config_.vocab_size + 1);
  uses_ = allocator.pinned(kDataMemory, DType::kI32, most, n);
  if (uses_.host != nullptr) counts_.resize(size_t(config_.vocab_size));
}

// --- training hooks ------------------------------------------------------------------------------

void Llama::set_hooks(GradientHooks& hooks) {
  hooks_ = &hooks;
  linears_.set_hooks(hooks);
}

void Llama::begin_use(int64_t group) {
  hooks_->before_use(group);
  linears_.begin_forward(group, cast_);
}

void Llama::gradients_added(int64_t group) { hooks_->gradients_added(group); }

void Llama::skip_micro_batch() {
  linears_.end_forward();
  for (int64_t group = parameter_groups(config_) - 1; group >= 0; --group) gradients_added(group);
  linears_.end_backward();
}

// --- forward -------------------------------------------------------------------------------------

void Llama::stage_tokens(const TokenBatch& batch) {
  const int64_t seq_len = options_.micro_batch.seq_len, n = int64_t(batch.tokens.size());
  check(n % seq_len == 0 && n > 0 && n <= tokens_.tensor.elements() &&
            batch.targets.size() == batch.tokens.size(),
        "{} tokens and {} targets staged; expected whole rows of {}, at most {}", n,
        batch.targets.size(), seq_len, tokens_.tensor.elements());
  check_range("token", batch.tokens, 0, config_.vocab_size);
  check_range("target", batch.targets, kIgnoreTarget, config_.vocab_size);
  staged_rows_ = n / seq_len;
  std::ranges::copy(batch.tokens, tokens_.image<int32_t>());
  std::ranges::copy(batch.targets, targets_.image<int32_t>());
  stage_documents(batch.document_begin);
}

void Llama::stage_documents(std::span<const int32_t> begin) {
  const int64_t seq_len = options_.micro_batch.seq_len, n = staged_rows_ * seq_len;
  const bool matter = options_.attention == AttentionScope::kDocument;
  check(begin.empty() || (matter && std::ssize(begin) == n),
        "{} beginnings of documents for {} tokens and attention over a {}", begin.size(), n,
        name_of(options_.attention));
  if (!matter) return;
  auto* const staged = document_begin_.image<int32_t>();
  if (begin.empty()) {
    std::fill_n(staged, n, 0);
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    const int64_t t = i % seq_len, is = begin[size_t(i)];
    check(is == t || (t > 0 && is == begin[size_t(i - 1)]),
          "the document of token {} of row {} begins at {}, which is neither {} nor that of the "
          "token before",
          t, i / seq_len, is, t);
    staged[i] = int32_t(is);
  }
}

void Llama::stage(const TokenBatch& step, float gradient_scale) {
  check(options_.keep == Keep::kForBackward, "this model was planned for evaluation only");
  const ProfileScope scope(device_, "preparation");
  stage_tokens(step);
  *gradient_scale_.image<float>() = gradient_scale;
  for (int64_t i = 0; i < staged_micro_batches(); ++i) sort_uses(i);
}

int64_t Llama::staged_micro_batches() const {
  return (staged_rows_ + options_.micro_batch.rows - 1) / options_.micro_batch.rows;
}

// Counting sort of the tokens: the positions that used each row of the table, in ascending order.
void Llama::sort_uses(int64_t micro_batch) {
  const int64_t most = options_.micro_batch.tokens(), first = micro_batch * most;
  const auto n = size_t(std::min(most, staged_rows_ * options_.micro_batch.seq_len - first));
  const std::span tokens(tokens_.image<int32_t>() + first, n);
  int32_t* const uses = uses_.row_range(micro_batch, 1).image<int32_t>();
  std::ranges::fill(counts_, 0);
  for (const int32_t token : tokens) ++counts_[size_t(token)];
  std::inclusive_scan(counts_.begin(), counts_.end(), counts_.begin());
  // Backward over positions, each count moves from the end of its token's uses to their start.
  for (size_t i = n; i-- > 0;) uses[--counts_[size_t(tokens[i])]] = int32_t(i);
}

void Llama::load(int64_t micro_batch) {
  check(micro_batch >= 0 && micro_batch < staged_micro_batches(),
        "micro-batch {} is not among the {} staged ones", micro_batch, staged_micro_batches());
  micro_batch_ = micro_batch;
  rows_ =
      std::min(options_.micro_batch.rows, staged_rows_ - micro_batch * options_.micro_batch.rows);
  for (const PinnedBuffer& buffer : {tokens_, targets_})
    device_.send(buffer.row_range(micro_batch, 1));
  if (options_.attention == AttentionScope::kDocument)
    device_.send(document_begin_.row_range(micro_batch, 1));
}

void Llama::forward(Fp8CastKind kind, Keep keep) {
  const ProfileScope scope(device_, "forward");
  cast_ = kind;
  keep_ = options_.recompute == Recompute::kBlock ? Keep::kNothing : keep;
  begin_use(0);
  embed();
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    begin_use(1 + layer);
    forward_layer(layer, Pass::kFirst);
  }
  keep_ = keep;
  begin_use(parameter_groups(config_) - 1);
  norm({.residual = acts_.layers.back().middle,
        .branch = acts_.branch,
        .sum = acts_.final_residual,
        .inv_rms = acts_.final_inv_rms,
        .gain = final_norm_index(config_),
        .linear = head_linear(config_),
        .out = acts_.final_norm});
}

void Llama::embed() {
  const ProfileScope scope(device_, "embedding");
  ops_->embedding_forward(weights_.compute(embedding_index()),
                          live(tokens_.tensor.row_range(micro_batch_, 1)),
                          live(acts_.layers[0].residual));
}

// --- loss ----------------------------------------------------------------------------------------

// Enqueues the losses of all rows and their sum; with `backward`, also the gradients of head and
// final norm.
void Llama::enqueue_losses(const Accumulate* backward) {
  const ProfileScope scope(device_, "loss");
  const int64_t n = rows_ * options_.micro_batch.seq_len;
  for (int64_t first = 0; first < n; first += options_.loss_chunk_rows) {
    hooks_->before_use(parameter_groups(config_) - 1);
    loss_chunk(first, backward);
  }
  ops_->sum_losses(live(losses_), loss_sums_.tensor.columns(micro_batch_, 1));
}

void Llama::loss_chunk(int64_t first, const Accumulate* backward) {
  const int64_t rows =
      std::min(options_.loss_chunk_rows, rows_ * options_.micro_batch.seq_len - first);
  const QuantizedMatrix x = acts_.final_norm.row_range(first, rows);
  const Tensor logits = logits_.row_range(0, rows);
  const int64_t head = head_linear(config_);
  linears_.forward(head, x, logits);
  cross_entropy(
      {.logits = logits,
       .targets = targets_.tensor.row_range(micro_batch_, 1).columns(first, rows),
       .losses = losses_.columns(first, rows),
       .gradient_scale = backward == nullptr ? nullptr : gradient_scale_.tensor.as<float>(),
       .z_loss = options_.z_loss});
  if (backward == nullptr) return;
  const Accumulate accumulate = first > 0 ? Accumulate::kYes : *backward;
  linears_.backward(head, {.d_y = logits,
                           .x = x,
                           .d_x = branch_scratch(config_.hidden_size).row_range(first, rows),
                           .accumulate = accumulate});
}

void Llama::cross_entropy(const CrossEntropyCall& call) {
  const ProfileScope scope(device_, "cross entropy");
  ops_->cross_entropy(call);
}

double Llama::loss() const {
  const auto* sums = loss_sums_.image<double>();
  return std::accumulate(sums, sums + staged_micro_batches(), 0.0);
}

std::span<const float> Llama::token_losses() {
  device_.download(live(losses_), reinterpret_cast<std::byte*>(host_losses_.data()));
  return std::span(host_losses_).first(size_t(rows_ * options_.micro_batch.seq_len));
}

Fp8CastKind Llama::evaluation_cast() const {
  const bool fold = options_.fp8 && options_.fp8->fp8_eval_amax == EvalAmax::kFold;
  return fold ? Fp8CastKind::kFold : Fp8CastKind::kNoFold;
}

double Llama::evaluate(const TokenBatch& batch) {
  stage_tokens(batch);
  load(0);
  forward(evaluation_cast(), Keep::kNothing);
  enqueue_losses(nullptr);
  device_.receive(loss_sums_);
  device_.synchronize();
  return loss();
}

void Llama::read(const TokenBatch& batch) {
  stage_tokens(batch);
  load(0);
  forward(Fp8CastKind::kNoFold, Keep::kNothing);
}

Tensor Llama::head_logits(int64_t first) {
  const int64_t left = rows_ * options_.micro_batch.seq_len - first;
  const int64_t rows = std::min(options_.loss_chunk_rows, left);
  const Tensor logits = logits_.row_range(0, rows);
  linears_.forward(head_linear(config_), acts_.final_norm.row_range(first, rows), logits);
  return logits;
}

void Llama::download_logits(const Tensor& logits, std::span<float> target) {
  if (options_.storage == DType::kF32)
    return device_.download(logits, reinterpret_cast<std::byte*>(target.data()));
  std::vector<bf16> narrow(target.size());
  device_.download(logits, reinterpret_cast<std::byte*>(narrow.data()));
  std::transform(narrow.begin(), narrow.end(), target.begin(), [](bf16 x) { return to_float(x); });
}

std::vector<float> Llama::logits(std::span<const int32_t> tokens,
                                 std::span<const int32_t> document_begin) {
  const std::vector<int32_t> no_targets(tokens.size(), -1);
  stage_tokens({tokens, no_targets, document_begin});
  load(0);
  forward(evaluation_cast(), Keep::kNothing);
  const int64_t n = int64_t(tokens.size()), vocab = config_.vocab_size;
  std::vector<float> all(size_t(n * vocab));
  for (int64_t first = 0; first < n; first += options_.loss_chunk_rows) {
    const Tensor chunk = head_logits(first);
    download_logits(chunk, std::span(all).subspan(size_t(first * vocab), size_t(chunk.elements())));
  }
  return all;
}

void Llama::visit_logits(std::span<const int64_t> positions,
                         const std::function<void(size_t, std::span<const float>)>& visit) {
  std::vector<float> logits(static_cast<size_t>(config_.vocab_size));
  Tensor chunk{};
  int64_t first = 0, end = 0;  // of the chunk
  for (size_t i = 0; i < positions.size(); ++i) {
    const int64_t at = positions[i];
    check(at >= first && at < rows_ * options_.micro_batch.seq_len, "position {} after {}", at,
          first);
    if (at >= end) {
      first = at / options_.loss_chunk_rows * options_.loss_chunk_rows;
      chunk = head_logits(first);
      end = first + chunk.rows;
    }
    download_logits(chunk.row_range(at - first, 1), logits);
    visit(i, logits);
  }
}

// --- backward ------------------------------------------------------------------------------------

void Llama::forward_backward(int64_t micro_batch, Accumulate accumulate) {
  load(micro_batch);
  device_.send(uses_.row_range(micro_batch, 1));
  device_.send(gradient_scale_);
  forward(Fp8CastKind::kFold, Keep::kForBackward);
  enqueue_losses(&accumulate);
  linears_.end_forward();
  cast_ = Fp8CastKind::kAgain, keep_ = Keep::kForBackward;
  backward(accumulate);
  linears_.end_backward();
  device_.receive(loss_sums_);
}

double Llama::forward_backward(const TokenBatch& batch, const BackwardOptions& options) {
  stage(batch, options.gradient_scale);
  check(staged_micro_batches() == 1, "{} rows do not fit one micro-batch of {}", staged_rows_,
        options_.micro_batch.rows);
  forward_backward(0, options.accumulate);
  device_.synchronize();
  return loss();
}

// Expects the gradient of the final norm's output in d_branch_.
void Llama::backward(Accumulate accumulate) {
  const ProfileScope scope(device_, "backward");
  ops_->zero(live(d_residual_));
  backward_norm({.x = acts_.final_residual,
                 .inv_rms = acts_.final_inv_rms,
                 .gain = final_norm_index(config_),
                 .accumulate = accumulate,
                 .next = last_linear_before(config_.num_hidden_layers)});
  gradients_added(parameter_groups(config_) - 1);
  for (int64_t layer = config_.num_hidden_layers - 1; layer >= 0; --layer) {
    if (options_.recompute == Recompute::kBlock) recompute_layer(layer);
    backward_mlp(layer, accumulate);
    backward_attention(layer, accumulate);
    gradients_added(1 + layer);
  }
  backward_embedding(accumulate);
  gradients_added(0);
}

void Llama::recompute_layer(int64_t layer) {
  const ProfileScope scope(device_, "forward again");
  forward_layer(layer, Pass::kRecompute);
}

// A tied matrix already holds its gradient as the head.
void Llama::backward_embedding(Accumulate accumulate) {
  const ProfileScope scope(device_, "embedding");
  const Tensor uses = live(uses_.tensor.row_range(micro_batch_, 1));
  ops_->find_first_uses(live(tokens_.tensor.row_range(micro_batch_, 1)), uses, first_use_);
  ops_->embedding_backward(
      {.d_out = live(d_residual_),
       .first = first_use_,
       .uses = uses,
       .d_table = weights_.gradient(embedding_index()),
       .accumulate = config_.tie_word_embeddings ? Accumulate::kYes : accumulate});
}

void Llama::round_gradients() {
  const ProfileScope scope(device_, "rounding of gradients");
  for (int64_t i = 0; i < int64_t(weights_.specs().size()); ++i)
    if (weights_.rounded_later(i)) ops_->round_to_bf16(weights_.gradient(i));
}

}  // namespace mpt
