#include "model/linears.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "model/parameters.h"

namespace mpt {
namespace {

void check_multiple(std::string_view what, int64_t value) {
  check(value % kFp8Multiple == 0, "{} is {}; FP8 GEMMs need multiples of {}", what, value,
        kFp8Multiple);
}

int64_t input_slot(int64_t linear) { return 2 * linear; }
int64_t weight_slot(int64_t linear) { return 2 * linear + 1; }

Fp8Part part_of(const Tensor& source, const QuantizedMatrix& codes) {
  return {.source = encoded_view(source), .target = codes.values, .transposed = codes.transposed};
}

Tensor planned(DType dtype, int64_t rows, int64_t cols) {
  return {nullptr, dtype, rows, cols, cols};
}

// An operand for planning, readable in either layout.
QuantizedMatrix planned_operand(DType dtype, int64_t rows, int64_t cols) {
  return {planned(dtype, rows, cols), planned(dtype, cols, rows)};
}

}  // namespace

Linears::Linears(const LlamaConfig& config, const LinearsOptions& options,
                 const WeightStore& weights, Device& device, Allocator& allocator)
    : config_(config), options_(options), weights_(weights), device_(device) {
  if (options.fp8) allocate_fp8(device, allocator);
  device.gemm().reserve(allocator, gemms());
}

void Linears::allocate_fp8(Device& device, Allocator& allocator) {
  check(options_.storage == DType::kBF16, "FP8 GEMMs need bf16 activations, found {}",
        name_of(options_.storage));
  check_multiple("hidden_size", config_.hidden_size);
  check_multiple("the width of queries", config_.query_width());
  check_multiple("the width of keys", config_.key_value_width());
  check_multiple("the stored intermediate_size", padded_intermediate_size(config_));
  check_multiple("seq_len", options_.micro_batch.seq_len);
  if (options_.fp8->fp8_lm_head) {
    check_multiple("vocab_size", config_.vocab_size);
    check_multiple("loss_chunk_rows", options_.loss_chunk_rows);
  }
  const int64_t n = linears_in_fp8();
  forward_ = std::make_unique<Fp8Scaling>(
      Fp8ScalingOptions{
          .name = "forward", .format = DType::kE4M3, .slots = 2 * n, .config = *options_.fp8},
      device, allocator);
  for (int64_t i = 0; i < n; ++i)
    weight_codes_.push_back(is_cast_for_use(i) && i >= kLinearsPerLayer
                                ? weight_codes_[size_t(i % kLinearsPerLayer)]
                                : allocate_weight_codes(i, allocator));
  if (options_.keep == Keep::kNothing) return;
  backward_ = std::make_unique<Fp8Scaling>(
      Fp8ScalingOptions{
          .name = "backward", .format = DType::kE5M2, .slots = n, .config = *options_.fp8},
      device, allocator);
  int64_t most = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t rows =
        i == head_linear(config_) ? options_.loss_chunk_rows : options_.micro_batch.tokens();
    most = std::max(most, rows * weight_codes_[size_t(i)].values.rows);
  }
  gradient_codes_ = {allocator.tensor(kScratchMemory, DType::kE5M2, 1, most)};
  if (rows_of_k(0))
    gradient_codes_.transposed = allocator.tensor(kScratchMemory, DType::kE5M2, 1, most);
}

QuantizedMatrix Linears::allocate_weight_codes(int64_t linear, Allocator& allocator) const {
  const Tensor w = planned_weight(linear, DType::kE4M3);
  QuantizedMatrix codes{allocator.tensor(kComputeWeightMemory, w.dtype, w.rows, w.cols)};
  if (rows_of_k(linear) && options_.keep == Keep::kForBackward)
    codes.transposed = allocator.tensor(kComputeWeightMemory, w.dtype, w.cols, w.rows);
  return codes;
}

// --- operands ------------------------------------------------------------------------------------

int64_t Linears::linears_in_fp8() const {
  if (!options_.fp8) return 0;
  return head_linear(config_) + (options_.fp8->fp8_lm_head ? 1 : 0);
}

bool Linears::in_fp8(int64_t linear) const { return linear < linears_in_fp8(); }

bool Linears::rows_of_k(int64_t linear) const {
  return in_fp8(linear) && device_.gemm().fp8_layout() == Fp8Layout::kRowsOfK;
}

int64_t Linears::parameter(int64_t linear) const {
  constexpr std::array kFirst{LayerParam::kQ, LayerParam::kO, LayerParam::kGate, LayerParam::kDown};
  if (linear == head_linear(config_)) return head_index(config_);
  return layer_index(config_, linear / kLinearsPerLayer, kFirst[size_t(linear % kLinearsPerLayer)]);
}

// Shape of a GEMM's W, without memory.
Tensor Linears::planned_weight(int64_t linear, DType dtype) const {
  const int64_t first = parameter(linear);
  const ParamSpec& spec = weights_.specs()[size_t(first)];
  int64_t rows = 0;
  for (int64_t j = 0; j < spec.fused; ++j)
    rows += weights_.specs()[size_t(first + j)].physical_rows;
  return planned(dtype, rows, spec.physical_cols);
}

Linears::Scaled Linears::weight(int64_t linear) const {
  if (!in_fp8(linear)) return {{weights_.compute_fused(parameter(linear))}};
  return {weight_codes_[size_t(linear)], forward_->scale_inv(weight_slot(linear))};
}

Linears::Scaled Linears::input(int64_t linear, const QuantizedMatrix& x) const {
  if (!in_fp8(linear)) return {x};
  return {x, forward_->scale_inv(input_slot(linear))};
}

// Storage for the codes of a dy [rows, out].
QuantizedMatrix Linears::gradient_codes(int64_t linear, int64_t rows) const {
  const int64_t cols = planned_weight(linear, DType::kE4M3).rows;
  check(rows * cols <= gradient_codes_.values.elements(),
        "gradient of {} elements; {} were planned", rows * cols, gradient_codes_.values.elements());
  const auto view = [](const Tensor& codes, int64_t r, int64_t c) {
    return Tensor{codes.data, codes.dtype, r, c, c};
  };
  QuantizedMatrix codes{view(gradient_codes_.values, rows, cols)};
  if (rows_of_k(linear)) codes.transposed = view(gradient_codes_.transposed, cols, rows);
  return codes;
}

std::optional<Fp8CastCall> Linears::gradient_cast(int64_t linear, int64_t rows) {
  if (!in_fp8(linear)) return std::nullopt;
  const QuantizedMatrix codes = gradient_codes(linear, rows);
  const Fp8Part part{.source = shape_of_source(rows, codes.cols()),
                     .target = codes.values,
                     .transposed = codes.transposed};
  const auto call = backward_->call_ahead(linear, part, Fp8CastKind::kFold);
  if (call) cast_gradient_ = linear;
  return call;
}

Linears::Scaled Linears::output_gradient(int64_t linear, const Tensor& d_y) {
  if (!in_fp8(linear)) return {{d_y}};
  const QuantizedMatrix codes = gradient_codes(linear, d_y.rows);
  if (std::exchange(cast_gradient_, std::nullopt) != linear) {
    const ProfileScope scope(device_, "FP8 casts");
    backward_->cast(linear, std::array{part_of(d_y, codes)}, Fp8CastKind::kFold);
  }
  return {codes, backward_->scale_inv(linear)};
}

// The head is read once per chunk of the loss, so casting it for each GEMM would cost more.
bool Linears::is_cast_for_use(int64_t linear) const {
  return options_.weight_codes == WeightCodes::kOneLayer && in_fp8(linear) &&
         linear != head_linear(config_);
}

// The fused masters of a GEMM's W and the destination of their codes. Padding of the codes is
// zeroed at allocation and never written.
std::vector<Fp8Part> Linears::weight_parts(int64_t linear, const QuantizedMatrix& codes) const {
  const int64_t first = parameter(linear);
  std::vector<Fp8Part> parts;
  int64_t row = 0;
  for (int64_t j = 0; j < weights_.specs()[size_t(first)].fused; ++j) {
    const ParamSpec& spec = weights_.specs()[size_t(first + j)];
    const QuantizedMatrix physical = codes.row_range(row, spec.physical_rows);
    Fp8Part part{.source = weights_.master(first + j), .through = options_.fp8->fp8_weight_source};
    if (physical.values.rows > 0) part.target = logical_view(spec, physical.values);
    if (physical.transposed.rows > 0)
      part.transposed = physical.transposed.row_range(0, spec.cols).columns(0, spec.rows);
    parts.push_back(part);
    row += spec.physical_rows;
  }
  return parts;
}

// Linear layers whose weights are in a parameter group; a tied head is in the embedding's group.
Linears::Range Linears::linears_of_group(int64_t group) const {
  const int64_t head = head_linear(config_);
  if (group == (config_.tie_word_embeddings ? 0 : parameter_groups(config_) - 1))
    return {head, head + 1};
  const bool of_layer = group > 0 && group < parameter_groups(config_) - 1;
  return of_layer ? Range{linear_index(group - 1, Linear::kQkv), linear_index(group, Linear::kQkv)}
                  : Range{};
}

void Linears::cast_weights(int64_t group, Fp8CastKind kind) {
  const Range linears = linears_of_group(group);
  const ProfileScope scope(device_, "FP8 casts");
  for (int64_t i = linears.first; i < std::min(linears.end, linears_in_fp8()); ++i) {
    const std::vector<Fp8Part> parts = weight_parts(i, weight_codes_[size_t(i)]);
    if (is_cast_for_use(i))
      forward_->observe(weight_slot(i), parts, kind);
    else
      forward_->cast(weight_slot(i), parts, kind);
  }
}

// Writes the codes that cast_weights() would have written.
void Linears::cast_for_use(int64_t linear, const QuantizedMatrix& codes) {
  const ProfileScope scope(device_, "FP8 casts");
  forward_->cast(weight_slot(linear), weight_parts(linear, codes), Fp8CastKind::kAgain);
}

void Linears::update_casts(int64_t group) {
  if (options_.fp8 && options_.fp8->fp8_weight_recast == Cadence::kStep)
    cast_weights(group, Fp8CastKind::kFold);
}

void Linears::update_casts() {
  for (int64_t group = 0; group < parameter_groups(config_); ++group) update_casts(group);
}

void Linears::begin_forward(int64_t group, Fp8CastKind kind) {
  if (options_.fp8 && options_.fp8->fp8_weight_recast == Cadence::kMicrobatch)
    cast_weights(group, kind);
}

void Linears::cast_input(int64_t linear, const Tensor& source, const QuantizedMatrix& operand,
                         Fp8CastKind kind) {
  if (!in_fp8(linear)) return;
  const ProfileScope scope(device_, "FP8 casts");
  forward_->cast(input_slot(linear), std::array{part_of(source, operand)}, kind);
}

void Linears::cast_input(int64_t linear, Fp8Casts& casts, const QuantizedMatrix& operand,
                         Fp8CastKind kind) {
  if (!in_fp8(linear)) return;
  const ProfileScope scope(device_, "FP8 casts");
  forward_->cast(input_slot(linear), std::array{computed_part(operand)}, kind, casts);
}

// Part for an input that is computed during its cast.
Fp8Part Linears::computed_part(const QuantizedMatrix& operand) const {
  return {.source = shape_of_source(operand.rows(), operand.cols()),
          .target = operand.values,
          .transposed = operand.transposed,
          .through = options_.fp8->fp8_cast_source};
}

std::optional<Fp8CastCall> Linears::input_cast(int64_t linear, const QuantizedMatrix& operand,
                                               Fp8CastKind kind) const {
  if (!in_fp8(linear)) return std::nullopt;
  return forward_->call_ahead(input_slot(linear), computed_part(operand), kind);
}

// --- GEMMs ---------------------------------------------------------------------------------------

Multiply Linears::forward_multiply(int64_t linear) const {
  if (!in_fp8(linear)) return options_.multiply;
  return options_.fp8->fp8_fast_accum_fprop ? Multiply::kFastFp8 : Multiply::kFull;
}

Multiply Linears::backward_multiply(int64_t linear) const {
  return in_fp8(linear) ? Multiply::kFull : options_.multiply;
}

void Linears::multiply(ProfileScopeName name, const GemmCall& call) {
  const ProfileScope scope(device_, name, flops_of(call));
  device_.gemm().run(call);
}

void Linears::forward(int64_t linear, const QuantizedMatrix& x, const Tensor& y) {
  if (is_cast_for_use(linear)) cast_for_use(linear, weight_codes_[size_t(linear)].for_forward());
  const Scaled a = input(linear, x), b = weight(linear);
  multiply("GEMM y", {.a = a.operand.values,
                      .b = b.operand.values,
                      .d = y,
                      .transpose_b = Transpose::kYes,
                      .multiply = forward_multiply(linear),
                      .scale_inv_a = a.scale_inv,
                      .scale_inv_b = b.scale_inv});
}

GemmCall Linears::input_gradient(int64_t linear, const Scaled& d_y, const Scaled& w,
                                 const Tensor& d_x) const {
  const bool rows_only = rows_of_k(linear);
  return {.a = d_y.operand.values,
          .b = rows_only ? w.operand.transposed : w.operand.values,
          .d = d_x,
          .transpose_b = rows_only ? Transpose::kYes : Transpose::kNo,
          .multiply = backward_multiply(linear),
          .scale_inv_a = d_y.scale_inv,
          .scale_inv_b = w.scale_inv};
}

GemmCall Linears::weight_gradient(int64_t linear, const Scaled& d_y, const Scaled& x) const {
  const bool rows_only = rows_of_k(linear);
  return {.a = rows_only ? d_y.operand.transposed : d_y.operand.values,
          .b = rows_only ? x.operand.transposed : x.operand.values,
          .d = weights_.gradient_fused(parameter(linear)),
          .transpose_a = rows_only ? Transpose::kNo : Transpose::kYes,
          .transpose_b = rows_only ? Transpose::kYes : Transpose::kNo,
          .multiply = backward_multiply(linear),
          .scale_inv_a = d_y.scale_inv,
          .scale_inv_b = x.scale_inv};
}

void Linears::backward(int64_t linear, const LinearBackward& call) {
  const Scaled d_y = output_gradient(linear, call.d_y);
  GemmCall d_weight = weight_gradient(linear, d_y, input(linear, call.x));
  d_weight.accumulate = call.accumulate;
  multiply("GEMM dW", d_weight);
  if (is_cast_for_use(linear)) cast_for_use(linear, weight_codes_[size_t(linear)].for_backward());
  multiply("GEMM dx", input_gradient(linear, d_y, weight(linear), call.d_x));
}

// The largest GEMM of each kind, so that the backend can reserve scratch.
std::vector<GemmCall> Linears::gemms() const {
  std::vector<GemmCall> calls;
  const auto add = [&](int64_t linear, int64_t rows) {
    const bool fp8 = in_fp8(linear);
    const Tensor w = planned_weight(linear, fp8 ? DType::kE4M3 : options_.storage),
                 y = planned(options_.storage, rows, w.rows);
    const QuantizedMatrix x = planned_operand(w.dtype, rows, w.cols);
    calls.push_back({.a = x.values,
                     .b = w,
                     .d = y,
                     .transpose_b = Transpose::kYes,
                     .multiply = forward_multiply(linear)});
    if (options_.keep == Keep::kNothing) return;
    const Scaled d_y{planned_operand(fp8 ? DType::kE5M2 : options_.storage, rows, w.rows)};
    calls.push_back(weight_gradient(linear, d_y, {x}));
    if (calls.back().d.dtype == DType::kF32) {  // only such gradients are accumulated into
      calls.push_back(calls.back());
      calls.back().accumulate = Accumulate::kYes;
    }
    calls.push_back(input_gradient(linear, d_y, {planned_operand(w.dtype, w.rows, w.cols)},
                                   planned(options_.storage, rows, w.cols)));
  };
  for (int64_t i = 0; i < kLinearsPerLayer; ++i) add(i, options_.micro_batch.tokens());
  add(head_linear(config_), options_.loss_chunk_rows);
  return calls;
}

// --- scales --------------------------------------------------------------------------------------

void Linears::roll(Fp8Scaling& scaling) {
  const ProfileScope scope(device_, "FP8 scales");
  if (const Tensor amaxes = scaling.gathered_amaxes(); amaxes.rows > 0) hooks_->reduce_amax(amaxes);
  scaling.roll();
}

void Linears::end_forward() {
  if (options_.fp8 && options_.fp8->fp8_amax_update == Cadence::kMicrobatch) roll(*forward_);
}

void Linears::end_backward() {
  if (options_.fp8 && options_.fp8->fp8_amax_update == Cadence::kMicrobatch) roll(*backward_);
}

void Linears::end_step() {
  if (!options_.fp8 || options_.fp8->fp8_amax_update != Cadence::kStep) return;
  roll(*forward_);
  roll(*backward_);
}

void Linears::reduce_amaxes() {
  if (!options_.fp8) return;
  if (const Tensor amaxes = forward_->gathered_amaxes(); amaxes.rows > 0)
    hooks_->reduce_amax(amaxes);
}

void Linears::reset_scales() {
  for (Fp8Scaling* scaling : {forward_.get(), backward_.get()})
    if (scaling != nullptr) scaling->reset();
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
    const std::string name = i == head_linear(config_)
                                 ? "lm_head"
                                 : fmt::format("model.layers.{}.{}", i / kLinearsPerLayer,
                                               kNames[size_t(i % kLinearsPerLayer)]);
    all.push_back({name + ".input", forward[size_t(input_slot(i))]});
    all.push_back({name + ".weight", forward[size_t(weight_slot(i))]});
    if (backward_) all.push_back({name + ".output_gradient", backward[size_t(i)]});
  }
  return all;
}

}  // namespace mpt
