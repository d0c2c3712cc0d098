// Forward and backward of one block of the model, and its operations, on the rows of the current
// micro-batch.
#include "device/device.h"
#include "model/llama.h"
#include "model/parameters.h"

namespace mpt {

// --- views ---------------------------------------------------------------------------------------

AttentionShape Llama::attention_shape() const {
  return {.batch = rows_,
          .seq_len = options_.micro_batch.seq_len,
          .heads = config_.num_attention_heads,
          .key_value_heads = config_.key_value_heads(),
          .head_dim = config_.head_dim(),
          .scope = options_.attention};
}

Tensor Llama::document_begin() const {
  if (options_.attention == AttentionScope::kRow) return {};
  return live(document_begin_.tensor.row_range(micro_batch_, 1));
}

// Tensors are planned for the largest micro-batch; a smaller one uses their first rows (or columns,
// if one per token).
Tensor Llama::live(const Tensor& t) const {
  const int64_t n = rows_ * options_.micro_batch.seq_len;
  return t.rows == 1 && t.cols == options_.micro_batch.tokens() ? t.columns(0, n)
                                                                : t.row_range(0, n);
}

QuantizedMatrix Llama::live(const QuantizedMatrix& operand) const {
  return operand.row_range(0, rows_ * options_.micro_batch.seq_len);
}

Tensor Llama::narrow(const Tensor& scratch, int64_t cols) const {
  return live(Tensor{scratch.data, scratch.dtype, scratch.rows, cols, cols});
}

// --- operations ----------------------------------------------------------------------------------

QuantizedMatrix Llama::wanted(const QuantizedMatrix& operand) const {
  return live(keep_ == Keep::kForBackward ? operand : operand.for_forward());
}

void Llama::cast_input(int64_t linear, const ComputedInput& input, const QuantizedMatrix& operand) {
  ComputedCasts casts(*ops_, input);
  linears_.cast_input(linear, casts, wanted(operand), cast_);
}

void Llama::cast_attention(int64_t linear, const LayerActivations& a) {
  linears_.cast_input(linear, live(a.attention), wanted(a.attention_operand), cast_);
}

void Llama::norm(const NormedInput& n) {
  const ProfileScope scope(device_, "RMSNorm");
  const bool fp8 = linears_.in_fp8(n.linear);
  const auto live_if_any = [&](const Tensor& t) { return t.data == nullptr ? Tensor{} : live(t); };
  const NormForwardCall call{.residual = live(n.residual),
                             .branch = live_if_any(n.branch),
                             .sum = live_if_any(n.sum),
                             .out = fp8 ? Tensor{} : live(n.out.values),
                             .inv_rms = live(n.inv_rms),
                             .gain = weights_.compute(n.gain),
                             .eps = float(config_.rms_norm_eps)};
  if (const auto cast = linears_.input_cast(n.linear, wanted(n.out), cast_))
    return ops_->norm_forward_and_cast(call, *cast);
  ops_->norm_forward(call);
  if (!fp8) return;
  const Tensor& x = call.sum.data == nullptr ? call.residual : call.sum;
  cast_input(n.linear, NormInput{.x = x, .inv_rms = call.inv_rms, .gain = call.gain}, n.out);
}

void Llama::swiglu(int64_t linear, const Tensor& gate_up, const QuantizedMatrix& out) {
  const ProfileScope scope(device_, "SwiGLU");
  if (linears_.in_fp8(linear))
    cast_input(linear, SwigluInput{live(gate_up)}, out);
  else
    ops_->swiglu_forward(live(gate_up), live(out.values));
}

void Llama::norm_heads(int64_t layer) {
  const ProfileScope scope(device_, "RMSNorm of heads");
  const LayerActivations& a = acts_.layers[size_t(layer)];
  const auto gain = [&](LayerParam which) {
    return weights_.compute(layer_index(config_, layer, which));
  };
  ops_->head_norm_forward({.qkv = live(a.qkv),
                           .before = live(a.qk_before_norm),
                           .inv_rms = live(a.qk_inv_rms),
                           .query_gain = gain(LayerParam::kQNorm),
                           .key_gain = gain(LayerParam::kKNorm),
                           .query_heads = config_.num_attention_heads,
                           .eps = float(config_.rms_norm_eps)});
}

void Llama::backward_norm_heads(int64_t layer, const Tensor& d_qkv, Accumulate accumulate) {
  const ProfileScope scope(device_, "RMSNorm of heads");
  const LayerActivations& a = acts_.layers[size_t(layer)];
  const int64_t queries = layer_index(config_, layer, LayerParam::kQNorm),
                keys = layer_index(config_, layer, LayerParam::kKNorm);
  const int64_t chunks = d_gain_partial_.rows, dim = config_.head_dim();
  // One after the other, so each is contiguous.
  const auto partial = [&](int64_t which) {
    return Tensor{d_gain_partial_.data + which * chunks * dim * size_of(DType::kF32), DType::kF32,
                  chunks, dim, dim};
  };
  ops_->head_norm_backward({.d_qkv = d_qkv,
                            .before = live(a.qk_before_norm),
                            .inv_rms = live(a.qk_inv_rms),
                            .query_gain = weights_.compute(queries),
                            .key_gain = weights_.compute(keys),
                            .d_query_partial = partial(0),
                            .d_key_partial = partial(1),
                            .d_query_gain = weights_.gradient(queries),
                            .d_key_gain = weights_.gradient(keys),
                            .query_heads = config_.num_attention_heads,
                            .accumulate = accumulate});
}

RopeCall Llama::rotation(const Tensor& qkv, float direction) const {
  return {.qkv = qkv,
          .cosine = rope_.cosine,
          .sine = rope_.sine,
          .rotated_heads = config_.num_attention_heads + config_.key_value_heads(),
          .head_dim = config_.head_dim(),
          .seq_len = options_.micro_batch.seq_len,
          .direction = direction,
          .document_begin = document_begin()};
}

void Llama::rotate(const Tensor& qkv) {
  const ProfileScope scope(device_, "RoPE");
  ops_->rope(rotation(qkv, +1.0f));
}

// With qk_norm, the norms' gradients follow, and the GEMM that reads the gradient casts it.
void Llama::backward_rotate(int64_t linear, const Tensor& d_qkv) {
  const ProfileScope scope(device_, "RoPE");
  const RopeCall call = rotation(d_qkv, -1.0f);
  const auto cast =
      config_.qk_norm ? std::optional<Fp8CastCall>() : linears_.gradient_cast(linear, d_qkv.rows);
  if (cast)
    ops_->rope_and_cast(call, *cast);
  else
    ops_->rope(call);
}

void Llama::attend(const LayerActivations& a) {
  const AttentionForward call{.shape = attention_shape(),
                              .qkv = live(a.qkv),
                              .out = live(a.attention),
                              .log_sum_exp = a.log_sum_exp,
                              .document_begin = document_begin()};
  const ProfileScope scope(device_, "attention", flops_of(call));
  device_.attention().forward(call);
}

void Llama::attend_backward(const LayerActivations& a, const Tensor& d_qkv) {
  const AttentionBackward call{.shape = attention_shape(),
                               .qkv = live(a.qkv),
                               .out = live(a.attention),
                               .log_sum_exp = a.log_sum_exp,
                               .d_out = branch_scratch(config_.query_width()),
                               .d_qkv = d_qkv,
                               .document_begin = document_begin()};
  const ProfileScope scope(device_, "attention", flops_of(call));
  device_.attention().backward(call);
}

void Llama::backward_norm(const NormedGradient& n) {
  const ProfileScope scope(device_, "RMSNorm");
  const NormBackwardCall call{.d_out = branch_scratch(config_.hidden_size),
                              .x = live(n.x),
                              .inv_rms = live(n.inv_rms),
                              .gain = weights_.compute(n.gain),
                              .d_x = live(d_residual_),
                              .d_gain_partial = d_gain_partial_,
                              .d_gain = weights_.gradient(n.gain),
                              .accumulate = n.accumulate};
  const auto cast =
      n.next ? linears_.gradient_cast(*n.next, call.d_x.rows) : std::optional<Fp8CastCall>();
  if (cast)
    ops_->norm_backward_and_cast(call, *cast);
  else
    ops_->norm_backward(call);
}

void Llama::backward_swiglu(int64_t linear, const Tensor& gate_up, const Tensor& d_out) {
  const ProfileScope scope(device_, "SwiGLU");
  if (const auto cast = linears_.gradient_cast(linear, gate_up.rows))
    ops_->swiglu_backward_and_cast(gate_up, d_out, *cast);
  else
    ops_->swiglu_backward(gate_up, d_out);
}

// --- forward -------------------------------------------------------------------------------------

// Leaves the block's output as `middle` and `branch`; the next norm adds them. Recomputation skips
// the last GEMM.
void Llama::forward_layer(int64_t layer, Pass pass) {
  const LayerActivations& a = acts_.layers[size_t(layer)];
  const auto index = [layer](Linear which) { return linear_index(layer, which); };
  NormedInput attn_norm{.residual = a.residual,
                        .inv_rms = a.attn_inv_rms,
                        .gain = layer_index(config_, layer, LayerParam::kAttnNorm),
                        .linear = index(Linear::kQkv),
                        .out = a.attn_norm};
  if (layer > 0 && pass == Pass::kFirst) {
    attn_norm.residual = acts_.layers[size_t(layer - 1)].middle;
    attn_norm.branch = acts_.branch;
    attn_norm.sum = a.residual;
  }
  norm(attn_norm);
  linears_.forward(index(Linear::kQkv), live(a.attn_norm), live(a.qkv));
  if (config_.qk_norm) norm_heads(layer);
  rotate(live(a.qkv));
  attend(a);
  cast_attention(index(Linear::kO), a);
  linears_.forward(index(Linear::kO), live(a.attention_operand), live(acts_.branch));
  norm({.residual = a.residual,
        .branch = acts_.branch,
        .sum = a.middle,
        .inv_rms = a.mlp_inv_rms,
        .gain = layer_index(config_, layer, LayerParam::kMlpNorm),
        .linear = index(Linear::kGateUp),
        .out = a.mlp_norm});
  linears_.forward(index(Linear::kGateUp), live(a.mlp_norm), live(a.gate_up));
  swiglu(index(Linear::kDown), a.gate_up, pass == Pass::kRecompute ? a.mlp.for_backward() : a.mlp);
  if (pass == Pass::kRecompute) return;
  linears_.forward(index(Linear::kDown), live(a.mlp), live(acts_.branch));
}

// --- backward ------------------------------------------------------------------------------------

std::optional<int64_t> Llama::last_linear_before(int64_t layer) {
  if (layer == 0) return std::nullopt;
  return linear_index(layer - 1, Linear::kDown);
}

void Llama::backward_mlp(int64_t layer, Accumulate accumulate) {
  const LayerActivations& a = acts_.layers[size_t(layer)];
  const Tensor d_mlp = wide_scratch(a.mlp.cols());
  linears_.backward(
      linear_index(layer, Linear::kDown),
      {.d_y = live(d_residual_), .x = live(a.mlp), .d_x = d_mlp, .accumulate = accumulate});
  const int64_t gate_up = linear_index(layer, Linear::kGateUp);
  backward_swiglu(gate_up, live(a.gate_up), d_mlp);
  linears_.backward(gate_up, {.d_y = live(a.gate_up),
                              .x = live(a.mlp_norm),
                              .d_x = branch_scratch(config_.hidden_size),
                              .accumulate = accumulate});
  backward_norm({.x = a.middle,
                 .inv_rms = a.mlp_inv_rms,
                 .gain = layer_index(config_, layer, LayerParam::kMlpNorm),
                 .accumulate = accumulate,
                 .next = linear_index(layer, Linear::kO)});
}

void Llama::backward_attention(int64_t layer, Accumulate accumulate) {
  const LayerActivations& a = acts_.layers[size_t(layer)];
  const Tensor d_qkv = wide_scratch(a.qkv.cols);
  linears_.backward(linear_index(layer, Linear::kO), {.d_y = live(d_residual_),
                                                      .x = live(a.attention_operand),
                                                      .d_x = branch_scratch(a.attention.cols),
                                                      .accumulate = accumulate});
  attend_backward(a, d_qkv);
  const int64_t qkv = linear_index(layer, Linear::kQkv);
  backward_rotate(qkv, d_qkv);
  if (config_.qk_norm) backward_norm_heads(layer, d_qkv, accumulate);
  linears_.backward(qkv, {.d_y = d_qkv,
                          .x = live(a.attn_norm),
                          .d_x = branch_scratch(config_.hidden_size),
                          .accumulate = accumulate});
  backward_norm({.x = a.residual,
                 .inv_rms = a.attn_inv_rms,
                 .gain = layer_index(config_, layer, LayerParam::kAttnNorm),
                 .accumulate = accumulate,
                 .next = last_linear_before(layer)});
}

}  // namespace mpt
