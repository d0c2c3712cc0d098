#include "model/linears.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "model/parameters.h"

namespace mpt {
namespace {

void check_multiple(std::string_view what, int64_t value) {
  check(value % kFp8Multiple == 0, "{} is {}; FP8 products need multiples of {}", what, value, kFp8Multiple);
}

int64_t input_slot(int64_t linear) { return 2 * linear; }
int64_t weight_slot(int64_t linear) { return 2 * linear + 1; }

}  // namespace

Linears::Linears(const LlamaConfig& config, const LinearsOptions& options, const WeightStore& weights,
                 Device& device, Allocator& allocator)
    : config_(config), options_(options), weights_(weights), device_(device) {
  if (options.fp8) allocate_fp8(device, allocator);
  device.gemm().reserve(allocator, products());
}

void Linears::allocate_fp8(Device& device, Allocator& allocator) {
  check(options_.storage == DType::kBF16, "FP8 products beside activations in {}", name_of(options_.storage));
  check_multiple("hidden_size", config_.hidden_size);
  check_multiple("the stored intermediate_size", padded_intermediate_size(config_));
  check_multiple("seq_len", options_.micro_batch.seq_len);
  if (options_.fp8->fp8_lm_head) {
    check_multiple("vocab_size", config_.vocab_size);
    check_multiple("loss_chunk_rows", options_.loss_chunk_rows);
  }
  const int64_t n = linears_in_fp8();
  forward_ = std::make_unique<Fp8Scaling>(
      Fp8ScalingOptions{.name = "forward", .format = DType::kE4M3, .slots = 2 * n, .config = *options_.fp8},
      device, allocator);
  for (int64_t i = 0; i < n; ++i) {
    const Tensor w = planned_weight(i, DType::kE4M3);
    weight_codes_.push_back(allocator.tensor(Purpose::kComputeWeights, w.dtype, w.rows, w.cols));
  }
  if (options_.keep == Keep::kNothing) return;
  backward_ = std::make_unique<Fp8Scaling>(
      Fp8ScalingOptions{.name = "backward", .format = DType::kE5M2, .slots = n, .config = *options_.fp8},
      device, allocator);
  int64_t most = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t rows = i == head_linear(config_) ? options_.loss_chunk_rows : options_.micro_batch.tokens();
    most = std::max(most, rows * weight_codes_[size_t(i)].rows);
  }
  gradient_codes_ = allocator.tensor(Purpose::kScratch, DType::kE5M2, 1, most);
}

// --- operands --------------------------------------------------------------------------------------------

int64_t Linears::linears_in_fp8() const {
  if (!options_.fp8) return 0;
  return head_linear(config_) + (options_.fp8->fp8_lm_head ? 1 : 0);
}

bool Linears::in_fp8(int64_t linear) const { return linear < linears_in_fp8(); }

int64_t Linears::parameter(int64_t linear) const {
  constexpr std::array kFirst{LayerParam::kQ, LayerParam::kO, LayerParam::kGate, LayerParam::kDown};
  if (linear == head_linear(config_)) return head_index(config_);
  return layer_index(linear / kLinearsPerLayer, kFirst[size_t(linear % kLinearsPerLayer)]);
}

// The shape of a product's W, with no memory behind it.
Tensor Linears::planned_weight(int64_t linear, DType dtype) const {
  const int64_t first = parameter(linear);
  const ParamSpec& spec = weights_.specs()[size_t(first)];
  int64_t rows = 0;
  for (int64_t j = 0; j < spec.fused; ++j) rows += weights_.specs()[size_t(first + j)].physical_rows;
  return {nullptr, dtype, rows, spec.physical_cols, spec.physical_cols};
}

Linears::Operand Linears::weight(int64_t linear) const {
  if (!in_fp8(linear)) return {weights_.compute_fused(parameter(linear))};
  return {weight_codes_[size_t(linear)], forward_->scale_inv(weight_slot(linear))};
}

Linears::Operand Linears::input(int64_t linear, const Tensor& x) const {
  if (!in_fp8(linear)) return {x};
  return {x, forward_->scale_inv(input_slot(linear))};
}

Linears::Operand Linears::output_gradient(int64_t linear, const Tensor& d_y) {
  if (!in_fp8(linear)) return {d_y};
  const Tensor codes{gradient_codes_.data, DType::kE5M2, d_y.rows, d_y.cols, d_y.cols};
  check(codes.elements() <= gradient_codes_.elements(), "a gradient of {} elements, {} were planned",
        codes.elements(), gradient_codes_.elements());
  backward_->cast(linear, std::array{Fp8Part{.source = encoded_view(d_y), .target = codes}},
                  Fp8CastKind::kFold);
  return {codes, backward_->scale_inv(linear)};
}

// Padding of the codes is zero from the start and is not touched.
void Linears::cast_weights(Fp8CastKind kind) {
  for (int64_t i = 0; i < linears_in_fp8(); ++i) {
    const int64_t first = parameter(i);
    std::vector<Fp8Part> parts;
    int64_t row = 0;
    for (int64_t j = 0; j < weights_.specs()[size_t(first)].fused; ++j) {
      const ParamSpec& spec = weights_.specs()[size_t(first + j)];
      const Tensor physical = weight_codes_[size_t(i)].row_range(row, spec.physical_rows);
      parts.push_back({.source = weights_.master(first + j),
                       .target = logical_view(spec, physical),
                       .through = options_.fp8->fp8_weight_source});
      row += spec.physical_rows;
    }
    forward_->cast(weight_slot(i), parts, kind);
  }
}

void Linears::weights_changed() {
  if (options_.fp8 && options_.fp8->fp8_weight_recast == Cadence::kStep) cast_weights(Fp8CastKind::kFold);
}

void Linears::begin_forward(Fp8CastKind kind) {
  if (options_.fp8 && options_.fp8->fp8_weight_recast == Cadence::kMicrobatch) cast_weights(kind);
}

void Linears::cast_input(int64_t linear, const Tensor& source, const Tensor& operand, Fp8CastKind kind) {
  if (!in_fp8(linear)) return;
  forward_->cast(input_slot(linear), std::array{Fp8Part{.source = encoded_view(source), .target = operand}},
                 kind);
}

// --- products --------------------------------------------------------------------------------------------

void Linears::forward(int64_t linear, const Tensor& x, const Tensor& y) {
  const Operand a = input(linear, x), b = weight(linear);
  device_.gemm().run({.a = a.values,
                      .b = b.values,
                      .d = y,
                      .transpose_b = Transpose::kYes,
                      .scale_inv_a = a.scale_inv,
                      .scale_inv_b = b.scale_inv});
}

void Linears::backward(int64_t linear, const LinearBackward& call) {
  const Operand d_y = output_gradient(linear, call.d_y), x = input(linear, call.x), w = weight(linear);
  device_.gemm().run({.a = d_y.values,
                      .b = x.values,
                      .d = weights_.gradient_fused(parameter(linear)),
                      .transpose_a = Transpose::kYes,
                      .accumulate = call.accumulate,
                      .scale_inv_a = d_y.scale_inv,
                      .scale_inv_b = x.scale_inv});
  device_.gemm().run({.a = d_y.values,
                      .b = w.values,
                      .d = call.d_x,
                      .scale_inv_a = d_y.scale_inv,
                      .scale_inv_b = w.scale_inv});
}

// The largest product of each kind, for the backend to reserve scratch.
std::vector<GemmCall> Linears::products() const {
  std::vector<GemmCall> calls;
  const auto add = [&](int64_t linear, int64_t rows) {
    const auto planned = [](DType dtype, int64_t r, int64_t c) { return Tensor{nullptr, dtype, r, c, c}; };
    const bool fp8 = in_fp8(linear);
    const Tensor w = planned_weight(linear, fp8 ? DType::kE4M3 : options_.storage),
                 x = planned(w.dtype, rows, w.cols), y = planned(options_.storage, rows, w.rows);
    calls.push_back({.a = x, .b = w, .d = y, .transpose_b = Transpose::kYes});
    if (options_.keep == Keep::kNothing) return;
    const Tensor d_y = planned(fp8 ? DType::kE5M2 : options_.storage, rows, w.rows);
    calls.push_back(
        {.a = d_y, .b = x, .d = weights_.gradient_fused(parameter(linear)), .transpose_a = Transpose::kYes});
    calls.push_back({.a = d_y, .b = w, .d = planned(options_.storage, rows, w.cols)});
  };
  for (int64_t i = 0; i < kLinearsPerLayer; ++i) add(i, options_.micro_batch.tokens());
  add(head_linear(config_), options_.loss_chunk_rows);
  return calls;
}

// --- scales ----------------------------------------------------------------------------------------------

void Linears::end_forward() {
  if (options_.fp8 && options_.fp8->fp8_amax_update == Cadence::kMicrobatch) forward_->roll();
}

void Linears::end_backward() {
  if (options_.fp8 && options_.fp8->fp8_amax_update == Cadence::kMicrobatch) backward_->roll();
}

void Linears::end_step() {
  if (!options_.fp8 || options_.fp8->fp8_amax_update != Cadence::kStep) return;
  forward_->roll();
  backward_->roll();
}

std::vector<NamedTensor> Linears::named_states() const {
  std::vector<NamedTensor> all;
  for (const Fp8Scaling* scaling : {forward_.get(), backward_.get()}) {
    if (scaling == nullptr) continue;
    for (NamedTensor& state : scaling->named_states()) all.push_back(std::move(state));
  }
  return all;
}

std::vector<Fp8OperandState> Linears::operand_states() const {
  if (!options_.fp8) return {};
  constexpr std::array kNames{"qkv", "o", "gate_up", "down"};
  const std::vector<Fp8SlotState> forward = forward_->slot_states();
  const std::vector<Fp8SlotState> backward =
      backward_ ? backward_->slot_states() : std::vector<Fp8SlotState>();
  std::vector<Fp8OperandState> all;
  for (int64_t i = 0; i < linears_in_fp8(); ++i) {
    const std::string name =
        i == head_linear(config_)
            ? "lm_head"
            : fmt::format("model.layers.{}.{}", i / kLinearsPerLayer, kNames[size_t(i % kLinearsPerLayer)]);
    all.push_back({name + ".input", forward[size_t(input_slot(i))]});
    all.push_back({name + ".weight", forward[size_t(weight_slot(i))]});
    if (backward_) all.push_back({name + ".output_gradient", backward[size_t(i)]});
  }
  return all;
}

}  // namespace mpt
