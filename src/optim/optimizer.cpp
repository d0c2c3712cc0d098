#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"
#include "device/range.h"

namespace mpt {
namespace {

const std::byte* bytes_of(const std::vector<float>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

// [ranks][targets]
std::vector<std::vector<UnitRange>> ranges_of(const std::vector<UpdateTarget>& targets,
                                              const UnitPartition* partition) {
  std::vector<std::vector<UnitRange>> ranges(partition == nullptr ? 1 : size_t(partition->ranks()));
  for (size_t rank = 0; rank < ranges.size(); ++rank)
    for (size_t i = 0; i < targets.size(); ++i)
      ranges[rank].push_back(partition == nullptr
                                 ? all_units(targets[i].weights.rows, targets[i].weights.cols)
                                 : partition->range(int64_t(rank), int64_t(i)));
  return ranges;
}

PieceMap piece_map(const std::vector<UpdateTarget>& targets, const OptimizerShard& shard) {
  check(shard.partition == nullptr || shard.partition->tensors() == int64_t(targets.size()),
        "a partition of {} tensors for {}", shard.partition == nullptr ? 0 : shard.partition->tensors(),
        targets.size());
  return {ranges_of(targets, shard.partition), shard.rank};
}

}  // namespace

OptimizerOptions optimizer_options(const PrecisionConfig& config, uint64_t seed) {
  return {.state = config.optimizer_state,
          .state_rounding = config.state_rounding,
          .state_update = config.state_update,
          .seed = seed};
}

Optimizer::Optimizer(const OptimizerConfig& config, const OptimizerOptions& options,
                     std::vector<UpdateTarget> targets, Device& device, Allocator& allocator)
    : config_(config),
      options_(options),
      targets_(std::move(targets)),
      pieces_(piece_map(targets_, options.shard)),
      device_(device),
      ops_(make_update_ops(device)),
      host_init_rms_(targets_.size(), 1.0f) {
  check_options();
  check_shard(allocator);
  units_ = ranges_of(targets_, options_.shard.partition)[size_t(options_.shard.rank)];
  for (size_t i = 0; i < targets_.size(); ++i) {
    check_target(i);
    states_.push_back(allocate_states(i, allocator));
  }
  if (needs_initial_rms(config_))
    init_rms_ = allocator.tensor(Purpose::kOptimizerState, DType::kF32, 1, int64_t(targets_.size()));
  allocate_scratch(allocator);
  allocate_tables(allocator);
}

void Optimizer::check_options() const {
  const bool plain =
      options_.state_rounding == Rounding::kNearest && options_.state_update == StateUpdate::kOnce;
  check(plain || options_.state == Format::kBF16,
        "fp32 states are neither rounded at random nor per operation");
  check(options_.state_update == StateUpdate::kOnce || options_.state_rounding == Rounding::kNearest,
        "states updated per operation are bf16 already; nothing is left to round at random");
  check(config_.nvfp4_additive_scale == Nvfp4AdditiveScale::kOff || config_.rule != UpdateRule::kMadam,
        "nvfp4_additive_scale with {}", name_of(config_.rule));
  check(config_.apollo_e == ApolloE::kOff || config_.rule == UpdateRule::kMPlusAdam, "apollo_e with {}",
        name_of(config_.rule));
  check(config_.writeback != Writeback::kKahan || config_.kahan_variant == KahanVariant::kFused ||
            config_.rule == UpdateRule::kAdamW,
        "kahan_variant per_op with {}", name_of(config_.rule));
}

void Optimizer::check_shard(const Allocator& allocator) const {
  const OptimizerShard& shard = options_.shard;
  const int64_t ranks = shard.partition == nullptr ? 1 : shard.partition->ranks();
  check(shard.collectives != nullptr || ranks == 1 || allocator.plans(),
        "an optimizer of {} ranks that cannot reach the others", ranks);
  check(shard.collectives == nullptr ||
            (shard.collectives->size() == ranks && shard.collectives->rank() == shard.rank),
        "collectives of other ranks than rank {} of {} in the partition", shard.rank, ranks);
  const auto ranges = ranges_of(targets_, shard.partition);
  for (size_t i = 0; i < targets_.size(); ++i) {
    const int64_t expected = all_units(targets_[i].weights.rows, targets_[i].weights.cols).count;
    int64_t units = 0;
    for (const std::vector<UnitRange>& of_rank : ranges) units += of_rank[i].count;
    check(units == expected, "a partition of {} units for the {} of {}", units, expected, targets_[i].name);
  }
}

void Optimizer::check_target(size_t index) const {
  const UpdateTarget& target = targets_[index];
  check(config_.writeback != Writeback::kKahan || target.weights.encoding.format == WeightFormat::kBF16,
        "kahan with {} weights of {}", name_of(target.weights.encoding.format), target.name);
  if (!is_projected(config_, target.kind)) return;
  const ProjectionShape shape = projection_shape(target.weights.rows, target.weights.cols);
  check(config_.apollo_e_rank <= shape.depth, "apollo_e_rank {} for {} of [{},{}]", config_.apollo_e_rank,
        target.name, target.weights.rows, target.weights.cols);
  check(units_[index].empty() || units_[index] == all_units(target.weights.rows, target.weights.cols),
        "units {}+{} of {}, which is projected as a whole", units_[index].first, units_[index].count,
        target.name);
}

Optimizer::States Optimizer::allocate_states(size_t index, Allocator& allocator) const {
  States states;
  const UpdateTarget& target = targets_[index];
  const UnitRange range = units_[index];
  // Where another rank has the units: what there is, of which nothing is here.
  const bool elsewhere = range.empty() && target.weights.elements() > 0;
  const auto allocate = [&](DType dtype, int64_t rows, int64_t cols) {
    if (elsewhere) return Tensor{nullptr, dtype, rows, cols, cols};
    return allocator.tensor(Purpose::kOptimizerState, dtype, rows, cols);
  };
  const bool projected = is_projected(config_, target.kind);
  const Tensor& g = target.gradient;
  const auto like_weights = [&](DType dtype) {
    if (elsewhere || range == all_units(target.weights.rows, target.weights.cols))
      return allocate(dtype, g.rows, g.stride).columns(0, g.cols);
    const Tensor shape{nullptr, dtype, g.rows, g.cols, g.stride};
    const int64_t count = span_of(shape, {g.rows, g.cols}, range).cols;
    return whole_of_span(allocator.tensor(Purpose::kOptimizerState, dtype, 1, count), shape, range);
  };
  states.rule = rule_states(config_, projected ? Moments::kProjected : Moments::kDense);
  for (size_t i = 0; i < states.rule.size(); ++i)
    states.moments.push_back(like_weights(dtype_of(options_.state)));
  if (config_.writeback == Writeback::kKahan) states.residuals = like_weights(DType::kBF16);
  if (projected) {
    const ProjectionShape shape = projection_shape(target.weights.rows, target.weights.cols);
    const int64_t rank = config_.apollo_e_rank;
    states.second = allocate(DType::kF32, shape.channels, rank);
    states.projection = allocate(DType::kF32, rank, shape.depth);
  }
  return states;
}

void Optimizer::allocate_scratch(Allocator& allocator) {
  int64_t most_pieces = 0, live_units = 0, scaled_rows = 0, rate_rows = 0;
  std::vector<MatrixShape> own_projected;
  for (size_t i = 0; i < targets_.size(); ++i) {
    const EncodedTensor& w = targets_[i].weights;
    most_pieces = std::max(most_pieces, square_sums(w.rows, w.cols));
    if (needs_next_maximum(w)) {
      live_.push_back(i);
      live_units = std::max(live_units, units_[i].count);
    }
    if (has_block_rates(i)) {
      block_rates_.push_back(i);
      rate_rows = std::max(rate_rows, w.rows);
    }
    if (is_scaled(w.encoding.format)) scaled_rows = std::max(scaled_rows, w.rows);
    if (projected(i) && !units_[i].empty()) own_projected.push_back({w.rows, w.cols});
  }
  const auto row = [&](DType dtype, int64_t count) {
    return allocator.tensor(Purpose::kScratch, dtype, 1, count);
  };
  partial_ = row(DType::kF64, pieces_.pieces());
  partial_parts_ = pieces_.parts(partial_);
  sums_ = row(DType::kF64, sums_of_pieces(pieces_.pieces()));
  if (partial_.data != nullptr)
    host_partial_.resize(size_t(most_pieces));  // a plan takes no memory of its own
  if (needs_exponent_table(config_))
    exponent_table_ = allocator.staged(Purpose::kScratch, DType::kF32, 1, 2 * ExponentDecay::kEntries);
  if (live_units > 0) unit_maxima_ = row(DType::kF32, live_units);
  if (!live_.empty()) next_maxima_ = row(DType::kF32, int64_t(live_.size()));
  if (!block_rates_.empty()) {
    mean_scales_ = row(DType::kF32, int64_t(block_rates_.size()));
    scale_sums_ = row(DType::kF64, rate_rows);
  }
  if (!own_projected.empty())
    projection_scratch_ = allocate_projection_scratch(own_projected, config_.apollo_e_rank, allocator);
  if (options_.survey == Survey::kOnDemand) allocate_survival(allocator);
  if (scaled_rows > 0) precision_ops_ = make_precision_ops(device_, allocator, scaled_rows);
}

void Optimizer::allocate_survival(Allocator& allocator) {
  int64_t rows = 0;
  for (const UnitRange& range : units_) rows = std::max(rows, ops_->survival_rows(range.count));
  survival_ = allocator.tensor(Purpose::kScratch, DType::kU8, rows, int64_t(sizeof(SurvivalCounters)));
  if (survival_.data != nullptr) host_survival_.resize(size_t(survival_.bytes()));
}

void Optimizer::allocate_tables(Allocator& allocator) {
  const auto bytes = [&](int64_t count) { return allocator.staged(Purpose::kScratch, DType::kU8, 1, count); };
  control_ = bytes(sizeof(StepControl));
  projection_scalars_ = bytes(int64_t(targets_.size() * sizeof(ProjectionScalars)));
  for (const auto late : {false, true})
    for (size_t i = 0; i < targets_.size(); ++i)
      if (!units_[i].empty() && projected(i) == late) order_.push_back(i);
  for (const size_t i : order_) calls_.push_back(call_of(i, {.t = 1}));
  const auto together = size_t(std::ranges::count_if(order_, [&](size_t i) { return !projected(i); }));
  if (together > 0) parts_.push_back({0, together, 0});
  for (size_t k = together; k < order_.size(); ++k) parts_.push_back({k, 1, 0});
  int64_t table = 0;
  for (Part& part : parts_) {
    part.table_offset = table;
    table += ops_->table_bytes(std::span(calls_).subspan(part.first, part.count));
  }
  update_table_ = bytes(table);
  for (const UpdateTarget& target : targets_) gradients_.push_back(target.gradient);
  norm_table_ = bytes(ops_->norm_table_bytes(norm_call({})));
  if (control_.host == nullptr) return;  // a plan
  ops_->write_norm_table(norm_call({}), norm_table_.host);
  device_.send(norm_table_);
}

double Optimizer::sum_of_partials(int64_t count) {
  device_.download(partial_.columns(0, count), reinterpret_cast<std::byte*>(host_partial_.data()));
  return std::accumulate(host_partial_.begin(), host_partial_.begin() + count, 0.0);
}

void Optimizer::weights_initialized() {
  if (init_rms_.rows == 0) return;
  for (size_t i = 0; i < targets_.size(); ++i) {
    const EncodedTensor& w = targets_[i].weights;
    ops_->sum_of_squares(w, partial_);
    host_init_rms_[i] = float(std::sqrt(sum_of_partials(square_sums(w.rows, w.cols)) / double(w.elements())));
  }
  device_.upload(bytes_of(host_init_rms_), init_rms_);
}

void Optimizer::states_loaded() {
  if (init_rms_.rows > 0) device_.download(init_rms_, reinterpret_cast<std::byte*>(host_init_rms_.data()));
}

// --- a step ----------------------------------------------------------------------------------------------

NormCall Optimizer::norm_call(const Tensor& losses) const {
  return {.gradients = gradients_,
          .pieces = pieces_,
          .table = norm_table_.tensor.data,
          .partial = partial_,
          .sums = sums_,
          .losses = losses,
          .clip_grad_norm = config_.clip_grad_norm,
          .control = control_.tensor.as<StepControl>()};
}

void Optimizer::measure(const Tensor& losses) {
  const Range range(device_, "gradient norm");
  const NormCall call = norm_call(losses);
  ops_->sum_gradients(call);
  if (!is_alone()) gather_partials();
  ops_->judge(call);
  device_.receive(control_);
}

void Optimizer::gather_partials() {
  const Range range(device_, "communication");
  options_.shard.collectives->all_gather(partial_parts_);
}

double Optimizer::grad_norm() {
  measure({});
  device_.synchronize();
  return control().grad_norm;
}

void Optimizer::prepare(const StepScalars& scalars) {
  const Range range(device_, "preparation");
  check(scalars.t >= 1, "optimizer step {}; steps count from 1", scalars.t);
  if (exponent_table_.tensor.rows > 0)
    std::ranges::copy(exponent_decay_table(config_, scalars), exponent_table_.image<float>());
  for (size_t k = 0; k < order_.size(); ++k) {
    if (projected(order_[k])) prepare_projection(order_[k], scalars);
    calls_[k] = call_of(order_[k], scalars);
  }
  for (const Part& part : parts_) ops_->write_table(updates_of(part), update_table_.host + part.table_offset);
}

void Optimizer::update() {
  const Range range(device_, "update");
  update_parts([](const Part&) {});
}

// The maxima of a tensor that is cut are found by several ranks. One that is projected is not cut, and is
// updated at once, because those that are take turns to use the memory of its factors.
void Optimizer::update_parts(const std::function<void(const Part&)>& before) {
  for (const Staged& staged : {update_table_, exponent_table_, projection_scalars_}) device_.send(staged);
  for (size_t i = 0; i < block_rates_.size(); ++i)
    ops_->find_mean_scale(targets_[block_rates_[i]].weights, scale_sums_,
                          mean_scales_.columns(int64_t(i), 1));
  if (!live_.empty()) ops_->clear_maxima(next_maxima_);
  const auto update = [&](const Part& part) {
    before(part);
    ops_->update(updates_of(part));
  };
  const bool some_together = !parts_.empty() && !projected(order_[0]);
  if (some_together) find_maxima(parts_[0]);
  for (const Part& part : std::span(parts_).subspan(size_t(some_together))) {
    ops_->project(projection_of(order_[part.first]));
    find_maxima(part);
    update(part);
  }
  if (!live_.empty() && !is_alone()) reduce_maxima();
  if (some_together) update(parts_[0]);
  for (size_t i = 0; i < live_.size(); ++i)
    ops_->take_maximum(targets_[live_[i]].weights, next_maxima_.columns(int64_t(i), 1),
                       control_.tensor.as<StepControl>());
}

void Optimizer::reduce_maxima() {
  const Range range(device_, "communication");
  options_.shard.collectives->all_reduce_max(next_maxima_);
}

void Optimizer::find_maxima(const Part& part) {
  if (!live_.empty()) ops_->find_maxima(updates_of(part));
}

void Optimizer::settle() {
  for (size_t i = 0; i < targets_.size(); ++i) settle(i);
}
void Optimizer::settle(size_t target) {
  if (precision_ops_) precision_ops_->settle(targets_[target].weights);
}

void Optimizer::control_by(float grad_scale) {
  *control_.image<StepControl>() = {.grad_norm = control().grad_norm, .grad_scale = grad_scale, .proceed = 1};
  device_.send(control_);
}

void Optimizer::step(const StepScalars& scalars) {
  check(is_alone(), "a step at once of an optimizer that must wait for other ranks' weights");
  prepare(scalars);
  control_by(scalars.grad_scale);
  update();
  settle();
  device_.synchronize();
}

std::vector<Survival> Optimizer::step_surveyed(const StepScalars& scalars) {
  check(options_.survey == Survey::kOnDemand, "a surveyed step of an optimizer that was not made for it");
  prepare(scalars);
  control_by(scalars.grad_scale);
  std::vector<Survival> all;
  for (const UpdateTarget& target : targets_)
    all.push_back({.name = target.name, .branches = config_.rule == UpdateRule::kMPlusAdam ? kBranches : 1});
  update_parts([&](const Part& part) {
    for (size_t k = part.first; k < part.first + part.count; ++k) survey(k, all[order_[k]]);
  });
  return all;
}

void Optimizer::survey(size_t position, Survival& sum) {
  const UpdateCall& call = calls_[position];
  const Tensor counters = survival_.row_range(0, ops_->survival_rows(call.range().count));
  ops_->survey(call, control_.tensor.as<StepControl>(), counters);
  device_.download(counters, host_survival_.data());
  for (int64_t row = 0; row < counters.rows; ++row) {
    SurvivalCounters one;
    memcpy(&one, host_survival_.data() + row * counters.cols, sizeof one);
    add_counters(one, sum);
  }
}

UpdatesCall Optimizer::updates_of(const Part& part) const {
  return {.tensors = std::span(calls_).subspan(part.first, part.count),
          .table = update_table_.tensor.data + part.table_offset,
          .control = control_.tensor.as<StepControl>(),
          .unit_maxima = unit_maxima_};
}

DitherSource Optimizer::dither(size_t target, int64_t t, Stream stream, Rounding rounding) const {
  return {.rounding = rounding,
          .seed = options_.seed,
          .tensor = targets_[target].tensor_id,
          .step = uint32_t(t),
          .stream = stream,
          .carry = config_.sr_saturate ? Carry::kSaturates : Carry::kToInfinity};
}

UpdateCall Optimizer::call_of(size_t index, const StepScalars& scalars) {
  const UpdateTarget& target = targets_[index];
  States& states = states_[index];
  const TensorScalars tensor{.rank = target.weights.rank,
                             .weight_unit = host_init_rms_[index],
                             .moments = projected(index) ? Moments::kProjected : Moments::kDense};
  // FP32 is stored as it is: no need to draw for it.
  const bool random =
      config_.writeback == Writeback::kStochastic && target.weights.encoding.format != WeightFormat::kF32;
  states.dithers.clear();
  for (const RuleState& state : states.rule)
    states.dithers.push_back(dither(index, scalars.t, state.stream, options_.state_rounding));
  UpdateCall call{.rule = make_rule(config_, scalars, tensor, exponent_table_.tensor.as<float>()),
                  .weights = target.weights,
                  .states = states.moments,
                  .state_dithers = states.dithers,
                  .state_update = options_.state_update,
                  .gradient = target.gradient,
                  .weight_dither = dither(index, scalars.t, Stream::kWeightRounding,
                                          random ? Rounding::kStochastic : Rounding::kNearest),
                  .units = units_[index],
                  .residuals = states.residuals};
  if (const auto live = std::ranges::find(live_, index); live != live_.end())
    call.next_maximum = next_maxima_.columns(live - live_.begin(), 1);
  if (const auto scaled = std::ranges::find(block_rates_, index); scaled != block_rates_.end())
    call.mean_scale = mean_scales_.columns(scaled - block_rates_.begin(), 1);
  if (config_.kahan_variant == KahanVariant::kPerOp && states.residuals.rows > 0)
    call.per_op_adamw = make_per_op_adamw(config_, scalars, tensor);
  if (projected(index)) call.factors = factors_of(projection_of(index));
  return call;
}

// A new P where one is due; what the step's scalars decide of the projection.
void Optimizer::prepare_projection(size_t index, const StepScalars& scalars) {
  const UpdateTarget& target = targets_[index];
  const ProjectionShape shape = projection_shape(target.weights.rows, target.weights.cols);
  projection_scalars_.image<ProjectionScalars>()[index] = make_projection_scalars(config_, scalars, shape);
  if ((scalars.t - 1) % config_.apollo_e_gap != 0) return;
  const std::vector<float> p = draw_projection({.seed = options_.seed,
                                                .tensor = target.tensor_id,
                                                .refresh = uint32_t((scalars.t - 1) / config_.apollo_e_gap),
                                                .rank = config_.apollo_e_rank,
                                                .depth = shape.depth});
  device_.upload(bytes_of(p), states_[index].projection);
}

ProjectionCall Optimizer::projection_of(size_t index) const {
  const UpdateTarget& target = targets_[index];
  return {.weights = target.weights,
          .gradient = target.gradient,
          .control = control_.tensor.as<StepControl>(),
          .projection = states_[index].projection,
          .second = states_[index].second,
          .sharing = config_.apollo_e,
          .scalars = projection_scalars_.tensor.as<ProjectionScalars>() + index,
          .scratch = projection_scratch_};
}

// --- states ----------------------------------------------------------------------------------------------

std::vector<TensorPart> Optimizer::states_of_targets() const {
  std::vector<TensorPart> parts;
  for (size_t i = 0; i < targets_.size(); ++i) {
    const States& states = states_[i];
    const EncodedTensor& w = targets_[i].weights;
    const auto named = [&](std::string_view name, const Tensor& tensor, int rank) {
      return NamedTensor{fmt::format("{}/{}", name, targets_[i].name), tensor, rank};
    };
    const ElementRange own = elements_of({w.rows, w.cols}, units_[i], {w.cols});
    const auto add = [&](std::string_view name, const Tensor& tensor) {
      parts.push_back({named(name, tensor, w.rank), own.first, own.count});
    };
    for (size_t s = 0; s < states.rule.size(); ++s) add(states.rule[s].name, states.moments[s]);
    if (states.residuals.rows > 0) add("kahan", states.residuals);
    if (states.projection.rows > 0) {
      const auto add_whole = [&](std::string_view name, const Tensor& tensor) {
        parts.push_back({named(name, tensor, 2), 0, own.count > 0 ? tensor.elements() : 0});
      };
      add_whole("v_r", states.second);
      add_whole("projection", states.projection);
    }
  }
  return parts;
}

std::vector<TensorPart> Optimizer::parts_to_save() const {
  return options_.shard.rank == 0 ? parts_to_load() : states_of_targets();
}

std::vector<TensorPart> Optimizer::parts_to_load() const {
  std::vector<TensorPart> parts = states_of_targets();
  if (init_rms_.rows > 0) parts.push_back(whole_part({"init_rms", init_rms_, 1}));
  return parts;
}

std::vector<NamedTensor> Optimizer::named_states() const {
  std::vector<NamedTensor> named;
  for (TensorPart& part : parts_to_load()) {
    check(part.is_whole(), "elements {}+{} of {}, all expected", part.first, part.count, part.whole.name);
    named.push_back(std::move(part.whole));
  }
  return named;
}

int64_t Optimizer::optimizer_state_bytes() const {
  int64_t bytes = 0;
  for (const TensorPart& part : states_of_targets()) bytes += part.count * size_of(part.whole.tensor.dtype);
  return bytes;
}

}  // namespace mpt
