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

// [ranks][tensors]
std::vector<std::vector<UnitRange>> ranges_of(const Partition& partition) {
  std::vector<std::vector<UnitRange>> ranges(static_cast<size_t>(partition.ranks()));
  for (size_t rank = 0; rank < ranges.size(); ++rank)
    for (int64_t i = 0; i < partition.tensors(); ++i)
      ranges[rank].push_back(partition.range(int64_t(rank), i));
  return ranges;
}

// Of one rank, which has everything.
Partition whole_partition(const std::vector<UpdateTarget>& targets) {
  std::vector<PartitionedTensor> tensors;
  for (const UpdateTarget& target : targets)
    tensors.push_back({.rows = target.weights.rows, .cols = target.weights.cols});
  return {std::move(tensors), 1};
}

PieceMap piece_map(const Partition& partition, const Communicator& ranks) {
  check(partition.ranks() == ranks.size(), "a partition over {} ranks for {}", partition.ranks(),
        ranks.size());
  return {ranges_of(partition), ranks.rank()};
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
    : Optimizer(config, options, targets,
                {.partition = whole_partition(targets),
                 .ranks = Communicator::single(),
                 .device = device,
                 .allocator = allocator}) {}

Optimizer::Optimizer(const OptimizerConfig& config, const OptimizerOptions& options,
                     std::vector<UpdateTarget> targets, const Place& place)
    : config_(config),
      projection_(projection_options(config.rule)),
      options_(options),
      targets_(std::move(targets)),
      ranks_(place.ranks),
      pieces_(piece_map(place.partition, place.ranks)),
      units_(ranges_of(place.partition)[size_t(place.ranks.rank())]),
      device_(place.device),
      ops_(make_update_ops(place.device)),
      host_init_rms_(targets_.size(), 1.0f) {
  check_options();
  check_partition(place.partition);
  Allocator& allocator = place.allocator;
  for (size_t i = 0; i < targets_.size(); ++i) {
    check_target(i);
    states_.push_back(allocate_states(i, allocator));
  }
  if (bounds_weights(config_.rule))
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
  check(config_.writeback != Writeback::kKahan || config_.kahan_variant == KahanVariant::kFused ||
            has_eager_kahan(config_.rule),
        "kahan_variant per_op with {}", rule_name(config_.rule));
}

void Optimizer::check_partition(const Partition& partition) const {
  check(partition.tensors() == int64_t(targets_.size()), "a partition of {} tensors for {}",
        partition.tensors(), targets_.size());
  for (size_t i = 0; i < targets_.size(); ++i) {
    const int64_t expected = all_units(targets_[i].weights.rows, targets_[i].weights.cols).count;
    int64_t units = 0;
    for (int64_t rank = 0; rank < partition.ranks(); ++rank) units += partition.range(rank, int64_t(i)).count;
    check(units == expected, "a partition of {} units for the {} of {}", units, expected, targets_[i].name);
  }
}

void Optimizer::check_target(size_t index) const {
  const UpdateTarget& target = targets_[index];
  check(
      config_.writeback != Writeback::kKahan || target.weights.encoding.format == plain_format(DType::kBF16),
      "kahan with {} weights of {}", name_of(target.weights.encoding.format), target.name);
  if (!is_projected(config_, target.kind)) return;
  const ProjectionShape shape = projection_shape(target.weights.rows, target.weights.cols);
  check(projection_->rank <= shape.depth, "a projection of rank {} for {} of [{},{}]", projection_->rank,
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
  states.infos = states_of(config_.rule, {.rank = target.weights.rank,
                                          .moments = projected ? Moments::kProjected : Moments::kDense});
  for (size_t i = 0; i < states.infos.size(); ++i)
    states.moments.push_back(like_weights(dtype_of(options_.state)));
  if (config_.writeback == Writeback::kKahan) states.residuals = like_weights(DType::kBF16);
  if (projected) {
    const ProjectionShape shape = projection_shape(target.weights.rows, target.weights.cols);
    const int64_t rank = projection_->rank;
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
    if (needs_maximum(w.encoding)) {
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
  if (const int64_t values = table_size(config_.rule); values > 0)
    rule_table_ = allocator.staged(Purpose::kScratch, DType::kF32, 1, values);
  if (live_units > 0) unit_maxima_ = row(DType::kF32, live_units);
  if (!live_.empty()) next_maxima_ = row(DType::kF32, int64_t(live_.size()));
  if (!block_rates_.empty()) {
    mean_scales_ = row(DType::kF32, int64_t(block_rates_.size()));
    scale_sums_ = row(DType::kF64, rate_rows);
  }
  if (!own_projected.empty())
    projection_scratch_ = allocate_projection_scratch(own_projected, projection_->rank, allocator);
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
  make_parts();
  int64_t table = 0;
  for (Part& part : parts_) {
    part.table_offset = table;
    table += part.batch->table_bytes(int64_t(part.count));
  }
  update_table_ = bytes(table);
  for (const UpdateTarget& target : targets_) gradients_.push_back(target.gradient);
  norm_table_ = bytes(ops_->norm_table_bytes(norm_call({})));
  if (control_.host == nullptr) return;  // a plan
  ops_->write_norm_table(norm_call({}), norm_table_.host);
  device_.send(norm_table_);
}

// Tensors with the same arithmetic and storage are one part; one that is projected is a part of its own,
// because those that are take turns to use the memory of their factors.
void Optimizer::make_parts() {
  struct Kind {
    bool projected;
    size_t step;
    BatchStorage storage;
    bool operator==(const Kind&) const = default;
  };
  std::vector<Kind> kinds;
  std::vector<std::vector<size_t>> members;
  for (const bool late : {false, true})
    for (size_t i = 0; i < targets_.size(); ++i) {
      if (units_[i].empty() || projected(i) != late) continue;
      const Kind kind{late, step_of(config_.rule, tensor_scalars(i)), storage_of(i)};
      const auto found = late ? kinds.end() : std::ranges::find(kinds, kind);
      if (found == kinds.end()) {
        kinds.push_back(kind);
        members.push_back({i});
      } else {
        members[size_t(found - kinds.begin())].push_back(i);
      }
    }
  for (size_t k = 0; k < kinds.size(); ++k) {
    parts_.push_back({.batch = ops_->make_batch(config_.rule, kinds[k].step, kinds[k].storage),
                      .first = order_.size(),
                      .count = members[k].size(),
                      .table_offset = 0,
                      .projected = kinds[k].projected});
    order_.insert(order_.end(), members[k].begin(), members[k].end());
  }
  for (const size_t i : order_) slots_.push_back(slot_of(i, 1));
}

void Optimizer::replace_ops(std::unique_ptr<UpdateOps> ops) {
  ops_ = std::move(ops);
  for (Part& part : parts_) {
    const size_t target = order_[part.first];
    part.batch =
        ops_->make_batch(config_.rule, step_of(config_.rule, tensor_scalars(target)), storage_of(target));
  }
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
  ranks_.all_gather(partial_parts_);
  ops_->judge(call);
  device_.receive(control_);
}

double Optimizer::grad_norm() {
  measure({});
  device_.synchronize();
  return control().grad_norm;
}

void Optimizer::prepare(const StepScalars& scalars) {
  const Range range(device_, "preparation");
  check(scalars.t >= 1, "optimizer step {}; steps count from 1", scalars.t);
  fill_table(config_.rule, scalars, {rule_table_.image<float>(), size_t(rule_table_.tensor.elements())});
  for (size_t k = 0; k < order_.size(); ++k) {
    if (projected(order_[k])) prepare_projection(order_[k], scalars);
    slots_[k] = slot_of(order_[k], scalars.t);
  }
  for (const Part& part : parts_)
    part.batch->write_table(scalars, call_of(part), update_table_.host + part.table_offset);
}

void Optimizer::update() {
  const Range range(device_, "update");
  update_parts([](const Part&) {});
}

// The maxima of a tensor that is cut are found by several ranks. One that is projected is not cut, and is
// updated at once.
void Optimizer::update_parts(const std::function<void(const Part&)>& before) {
  for (const Staged& staged : {update_table_, rule_table_, projection_scalars_}) device_.send(staged);
  for (size_t i = 0; i < block_rates_.size(); ++i)
    ops_->find_mean_scale(targets_[block_rates_[i]].weights, scale_sums_,
                          mean_scales_.columns(int64_t(i), 1));
  if (!live_.empty()) ops_->clear_maxima(next_maxima_);
  const auto update = [&](const Part& part) {
    before(part);
    part.batch->update(call_of(part));
  };
  for (const Part& part : parts_) {
    if (part.projected) ops_->project(projection_of(order_[part.first]));
    find_maxima(part);
    if (part.projected) update(part);
  }
  if (!live_.empty()) ranks_.all_reduce_max(next_maxima_);
  for (const Part& part : parts_)
    if (!part.projected) update(part);
  for (size_t i = 0; i < live_.size(); ++i)
    ops_->take_maximum(targets_[live_[i]].weights, next_maxima_.columns(int64_t(i), 1),
                       control_.tensor.as<StepControl>());
}

void Optimizer::find_maxima(const Part& part) {
  if (!live_.empty()) part.batch->find_maxima(call_of(part));
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
  check(ranks_.is_single(), "a step at once of an optimizer that must wait for other ranks' weights");
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
    all.push_back({.name = target.name, .branches = branches_of(config_.rule)});
  update_parts([&](const Part& part) { survey(scalars, part, all); });
  sum_over_ranks(all, ranks_);
  return all;
}

void Optimizer::survey(const StepScalars& scalars, const Part& part, std::vector<Survival>& sums) {
  const BatchCall call = call_of(part);
  for (size_t i = 0; i < part.count; ++i) {
    Survival& sum = sums[order_[part.first + i]];
    const Tensor counters = survival_.row_range(0, ops_->survival_rows(call.tensors[i].range().count));
    part.batch->survey(scalars, call, i, counters);
    device_.download(counters, host_survival_.data());
    for (int64_t row = 0; row < counters.rows; ++row) {
      SurvivalCounters one;
      memcpy(&one, host_survival_.data() + row * counters.cols, sizeof one);
      add_counters(one, sum);
    }
  }
}

BatchCall Optimizer::call_of(const Part& part) const {
  return {.tensors = std::span(slots_).subspan(part.first, part.count),
          .table = update_table_.tensor.data + part.table_offset,
          .control = control_.tensor.as<StepControl>(),
          .unit_maxima = unit_maxima_};
}

TensorScalars Optimizer::tensor_scalars(size_t index) const {
  return {.rank = targets_[index].weights.rank,
          .weight_unit = host_init_rms_[index],
          .moments = projected(index) ? Moments::kProjected : Moments::kDense,
          .table = rule_table_.tensor.as<float>()};
}

BatchStorage Optimizer::storage_of(size_t index) const {
  const WeightFormat format = targets_[index].weights.encoding.format;
  // Elements that stand alone have one codec.
  if (config_.writeback != Writeback::kKahan)
    return {.format = is_scaled(format) ? format : plain_format(DType::kF32)};
  const bool fused = config_.kahan_variant == KahanVariant::kFused;
  return {.format = format, .compensation = fused ? Compensation::kFused : Compensation::kEager};
}

DitherSource Optimizer::dither(size_t target, int64_t t, RandomStream stream, Rounding rounding) const {
  return {.rounding = rounding,
          .seed = options_.seed,
          .tensor = targets_[target].tensor_id,
          .step = uint32_t(t),
          .stream = stream,
          .carry = config_.sr_saturate ? Carry::kSaturates : Carry::kToInfinity};
}

TensorSlot Optimizer::slot_of(size_t index, int64_t t) {
  const UpdateTarget& target = targets_[index];
  States& states = states_[index];
  // FP32 is stored as it is: no need to draw for it.
  const bool random = config_.writeback == Writeback::kStochastic &&
                      target.weights.encoding.format != plain_format(DType::kF32);
  states.dithers.clear();
  for (const StateInfo& info : states.infos)
    states.dithers.push_back(dither(index, t, info.rounding, options_.state_rounding));
  TensorSlot slot{.weights = target.weights,
                  .states = states.moments,
                  .state_dithers = states.dithers,
                  .state_update = options_.state_update,
                  .gradient = target.gradient,
                  .weight_dither = dither(index, t, kWeightRoundingStream,
                                          random ? Rounding::kStochastic : Rounding::kNearest),
                  .scalars = tensor_scalars(index),
                  .units = units_[index],
                  .residuals = states.residuals};
  if (const auto live = std::ranges::find(live_, index); live != live_.end())
    slot.next_maximum = next_maxima_.columns(live - live_.begin(), 1);
  if (const auto scaled = std::ranges::find(block_rates_, index); scaled != block_rates_.end())
    slot.mean_scale = mean_scales_.columns(scaled - block_rates_.begin(), 1);
  if (projected(index)) slot.factors = factors_of(projection_of(index));
  return slot;
}

// A new P where one is due; what the step's scalars decide of the projection.
void Optimizer::prepare_projection(size_t index, const StepScalars& scalars) {
  const UpdateTarget& target = targets_[index];
  const ProjectionShape shape = projection_shape(target.weights.rows, target.weights.cols);
  projection_scalars_.image<ProjectionScalars>()[index] =
      mpt::projection_scalars(*projection_, scalars.t, shape);
  if ((scalars.t - 1) % projection_->gap != 0) return;
  const std::vector<float> p = draw_projection({.seed = options_.seed,
                                                .tensor = target.tensor_id,
                                                .refresh = uint32_t((scalars.t - 1) / projection_->gap),
                                                .rank = projection_->rank,
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
          .sharing = projection_->sharing,
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
    for (size_t s = 0; s < states.infos.size(); ++s) add(states.infos[s].name, states.moments[s]);
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
  return ranks_.is_root() ? parts_to_load() : states_of_targets();
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
