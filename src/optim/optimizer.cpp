#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "device/device.h"
#include "ranks/communicator.h"

namespace mpt {
namespace {

// Returns a partition with everything on one rank.
Partition whole_partition(const std::vector<UpdateTarget>& targets) {
  std::vector<PartitionedTensor> tensors;
  for (const UpdateTarget& target : targets)
    tensors.push_back({.rows = target.weights.rows, .cols = target.weights.cols});
  return {std::move(tensors), 1};
}

void check_partition(const std::vector<UpdateTarget>& targets, const Optimizer::Place& place) {
  const Partition& partition = place.partition;
  check(partition.ranks() == place.ranks.size(), "partition over {} ranks for a run of {}",
        partition.ranks(), place.ranks.size());
  check(partition.tensors() == int64_t(targets.size()),
        "partition of {} tensors for an optimizer of {}", partition.tensors(), targets.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    const int64_t expected = all_blocks(targets[i].weights.rows, targets[i].weights.cols).count;
    int64_t blocks = 0;
    for (int64_t rank = 0; rank < partition.ranks(); ++rank)
      blocks += partition.range(rank, int64_t(i)).count;
    check(blocks == expected, "partition of {} blocks; expected {} for {}", blocks, expected,
          targets[i].name);
  }
}

// Returns the update blocks of every target that this rank updates.
std::vector<BlockRange> own_blocks(const std::vector<UpdateTarget>& targets,
                                   const Optimizer::Place& place) {
  check_partition(targets, place);
  std::vector<BlockRange> blocks;
  for (size_t i = 0; i < targets.size(); ++i)
    blocks.push_back(place.partition.range(place.ranks.rank(), int64_t(i)));
  return blocks;
}

RoundingErrors rounding_errors(const OptimizerConfig& config) {
  switch (config.weight_rounding) {
    case WeightRounding::kNearest:
    case WeightRounding::kStochastic:
      return config.error_feedback == ErrorFeedbackMode::kMomentum ? RoundingErrors::kFedBack
                                                                   : RoundingErrors::kLost;
    case WeightRounding::kKahan:
      return config.kahan_variant == KahanVariant::kFused ? RoundingErrors::kKahanFused
                                                          : RoundingErrors::kKahanEager;
    case WeightRounding::kRemainder:
      return RoundingErrors::kRemainder;
    case WeightRounding::kUlpResidual:
      return RoundingErrors::kUlpResidual;
    case WeightRounding::kMaster:
      return RoundingErrors::kMaster;
  }
  throw LogicError("no such weight rounding");
}

}  // namespace

OptimizerOptions optimizer_options(const PrecisionConfig& config, uint64_t seed) {
  return {.state = config.optimizer_state,
          .state_rounding = config.state_rounding,
          .state_update = config.state_update,
          .seed = seed};
}

// --- construction --------------------------------------------------------------------------------

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
      options_(options),
      targets_(std::move(targets)),
      ranks_(place.ranks),
      device_(place.device),
      ops_(make_ops<OptimizerOps>(place.device.stream())),
      states_(config_, options_.state, targets_, own_blocks(targets_, place), place.allocator),
      norm_(gradients(),
            {.clip_grad_norm = config_.clip_grad_norm,
             .partition = place.partition,
             .ranks = place.ranks,
             .device = place.device,
             .allocator = place.allocator},
            *ops_),
      scales_(config_, targets_, states_, place.device, place.allocator),
      projections_(projections(), place.device, place.allocator),
      orthogonalization_(orthogonalization_options(config_.rule), own_orthogonalized(),
                         options_.state_update, place.device, place.allocator) {
  check_options();
  for (size_t i = 0; i < targets_.size(); ++i) check_target(i);
  if (options_.statistics == StepStatistics::kOnDemand) allocate_counters(place.allocator);
  allocate_tables(place.allocator);
}

std::vector<Tensor> Optimizer::gradients() const {
  std::vector<Tensor> gradients;
  for (const UpdateTarget& target : targets_) gradients.push_back(target.gradient);
  return gradients;
}

Projections::Options Optimizer::projections() const {
  Projections::Options options{.projection = projection_options(config_.rule),
                               .rounding = config_.weight_rounding,
                               .seed = options_.seed,
                               .targets = targets_.size(),
                               .own_shapes = {}};
  for (size_t i = 0; i < targets_.size(); ++i)
    if (states_[i].projected() && !states_[i].blocks.empty())
      options.own_shapes.push_back({targets_[i].weights.rows, targets_[i].weights.cols});
  return options;
}

std::vector<MatrixShape> Optimizer::own_orthogonalized() const {
  std::vector<MatrixShape> shapes;
  for (size_t i = 0; i < targets_.size(); ++i)
    if (states_[i].orthogonalized() && !states_[i].blocks.empty())
      shapes.push_back({targets_[i].weights.rows, targets_[i].weights.cols});
  return shapes;
}

void Optimizer::check_options() const {
  const bool plain =
      options_.state_rounding == Rounding::kNearest && options_.state_update == StateUpdate::kOnce;
  check(plain || options_.state == Format::kBF16,
        "fp32 states cannot be rounded stochastically or per operation");
  check(
      options_.state_update == StateUpdate::kOnce || options_.state_rounding == Rounding::kNearest,
      "states updated per operation are already bf16 and cannot be rounded stochastically");
  check(config_.weight_rounding != WeightRounding::kKahan ||
            config_.kahan_variant == KahanVariant::kFused || has_eager_kahan(config_.rule),
        "{} does not support kahan_variant per_op", rule_name(config_.rule));
  check(config_.error_feedback == ErrorFeedbackMode::kOff ||
            (takes_errors(config_.rule) && !residual_of(config_.weight_rounding)),
        "{} with weight_rounding {} does not support error_feedback", rule_name(config_.rule),
        name_of(config_.weight_rounding));
}

void Optimizer::check_target(size_t index) const {
  const UpdateTarget& target = targets_[index];
  const EncodedTensor& w = target.weights;
  check(!completes_bf16(config_.weight_rounding) || w.encoding.format == plain_format(DType::kBF16),
        "{} rounding needs bf16 weights, found {} for {}", name_of(config_.weight_rounding),
        name_of(w.encoding.format), target.name);
  const BlockRange blocks = states_[index].blocks;
  check(!states_[index].whole() || blocks.empty() || blocks == all_blocks(w.rows, w.cols),
        "blocks [{}, +{}) of {}, which must be updated as a whole", blocks.first, blocks.count,
        target.name);
  if (!states_[index].projected()) return;
  const int64_t rank = states_[index].projection.rows;
  check(rank <= projection_shape(w.rows, w.cols).depth,
        "projection rank {} is too large for {} of [{},{}]", rank, target.name, w.rows, w.cols);
}

void Optimizer::allocate_counters(Allocator& allocator) {
  int64_t rows = 0;
  for (size_t i = 0; i < targets_.size(); ++i)
    rows = std::max(rows, ops_->counter_rows(states_[i].blocks.count));
  counters_.on_device =
      allocator.tensor(kScratchMemory, DType::kU8, rows, int64_t(sizeof(UpdateCounters)));
  if (counters_.on_device.data != nullptr)
    counters_.on_host.resize(size_t(counters_.on_device.bytes()));
}

void Optimizer::allocate_tables(Allocator& allocator) {
  if (const int64_t values = table_size(config_.rule); values > 0)
    rule_table_ = allocator.pinned(kScratchMemory, DType::kF32, 1, values);
  make_batches();
  int64_t bytes = 0;
  for (Batch& batch : batches_) {
    batch.table_offset = bytes;
    bytes += batch.update->table_bytes(int64_t(batch.targets.size()));
  }
  update_table_ = allocator.pinned(kScratchMemory, DType::kU8, 1, bytes);
}

// Tensors with the same arithmetic and storage share a batch, unless each needs its whole matrix.
void Optimizer::make_batches() {
  struct Kind {
    size_t step;
    BatchStorage storage;
    bool operator==(const Kind&) const = default;
  };
  std::vector<Kind> kinds;
  for (const bool whole : {false, true})
    for (size_t i = 0; i < targets_.size(); ++i) {
      if (states_[i].blocks.empty() || states_[i].whole() != whole) continue;
      const Kind kind{step_of(config_.rule, tensor_scalars(i)), storage_of(i)};
      const auto found = whole ? kinds.end() : std::ranges::find(kinds, kind);
      const size_t batch = size_t(found - kinds.begin());
      if (found == kinds.end()) {
        kinds.push_back(kind);
        batches_.push_back(
            {.update = batch_of(i), .targets = {}, .slots = {}, .table_offset = 0, .whole = whole});
      }
      batches_[batch].targets.push_back(i);
      batches_[batch].slots.push_back(slot_of(i, 1));
    }
}

std::unique_ptr<UpdateBatch> Optimizer::batch_of(size_t target) const {
  return ops_->make_batch(config_.rule, step_of(config_.rule, tensor_scalars(target)),
                          storage_of(target));
}

void Optimizer::replace_ops(std::unique_ptr<OptimizerOps> ops) {
  ops_ = std::move(ops);
  for (Batch& batch : batches_) batch.update = batch_of(batch.targets.front());
}

void Optimizer::weights_initialized() {
  if (config_.weight_rounding == WeightRounding::kMaster)
    for (size_t i = 0; i < targets_.size(); ++i)
      ops_->copy_weights(targets_[i].weights, states_[i].blocks, states_[i].residuals);
  if (!states_.keeps_init_rms()) return;
  std::vector<float> rms;
  for (const UpdateTarget& target : targets_)
    rms.push_back(float(std::sqrt(norm_.sum_of_squares(*ops_, target.weights) /
                                  double(target.weights.elements()))));
  states_.set_init_rms(std::move(rms), device_);
}

void Optimizer::states_loaded() { states_.read_init_rms(device_); }

// --- a step --------------------------------------------------------------------------------------

void Optimizer::measure_gradients(const Tensor& losses) { norm_.measure(*ops_, losses); }

double Optimizer::grad_norm() {
  measure_gradients({});
  device_.synchronize();
  return control().grad_norm;
}

void Optimizer::prepare(const StepScalars& scalars) {
  const ProfileScope scope(device_, "preparation");
  check(scalars.t >= 1, "optimizer step {}; steps start at 1", scalars.t);
  fill_table(config_.rule, scalars,
             {rule_table_.image<float>(), size_t(rule_table_.tensor.elements())});
  for (Batch& batch : batches_) {
    for (size_t k = 0; k < batch.targets.size(); ++k) {
      const size_t target = batch.targets[k];
      if (states_[target].projected())
        projections_.prepare(target, targets_[target], states_[target], scalars);
      batch.slots[k] = slot_of(target, scalars.update_of_run());
    }
    batch.update->write_table(scalars, call_of(batch), update_table_.host + batch.table_offset);
  }
}

void Optimizer::update() {
  const ProfileScope scope(device_, "update");
  update_batches([](const Batch&) {});
}

// The maxima of a split tensor come from several ranks, so its update waits for reduce_maxima(). A
// tensor that is never split is updated at once.
void Optimizer::update_batches(const std::function<void(const Batch&)>& before) {
  for (const PinnedBuffer& buffer : {update_table_, rule_table_, projections_.scalars()})
    device_.send(buffer);
  scales_.find_means(*ops_);
  scales_.clear_maxima(*ops_);
  const auto update = [&](const Batch& batch) {
    before(batch);
    batch.update->update(call_of(batch));
  };
  for (const Batch& batch : batches_) {
    if (batch.whole) find_directions(batch.targets.front());
    scales_.find_maxima(*batch.update, call_of(batch));
    if (batch.whole) update(batch);
  }
  scales_.reduce_maxima(ranks_);
  for (const Batch& batch : batches_)
    if (!batch.whole) update(batch);
  scales_.take_maxima(*ops_, norm_.device_control());
}

void Optimizer::find_directions(size_t target) {
  const TargetStates& states = states_[target];
  if (states.projected())
    ops_->project(projections_.call(target, targets_[target], states, norm_.device_control()));
  else
    orthogonalization_.run(*ops_, targets_[target].gradient, states.moments.front(),
                           norm_.device_control());
}

void Optimizer::rescale() {
  for (size_t i = 0; i < targets_.size(); ++i) rescale(i);
}
void Optimizer::rescale(size_t target) { scales_.rescale(target); }

void Optimizer::step(const StepScalars& scalars) {
  check(ranks_.is_single(), "step() of an optimizer that must wait for other ranks' weights");
  prepare(scalars);
  norm_.proceed_with(scalars.grad_scale);
  update();
  rescale();
  device_.synchronize();
}

std::vector<UpdateStatistics> Optimizer::step_with_statistics(const StepScalars& scalars) {
  check(options_.statistics == StepStatistics::kOnDemand,
        "the optimizer was not made to collect update statistics");
  prepare(scalars);
  norm_.proceed_with(scalars.grad_scale);
  std::vector<UpdateStatistics> all;
  for (const UpdateTarget& target : targets_)
    all.push_back({.name = target.name,
                   .branches = branches_of(config_.rule),
                   .has_residuals = residual_of(config_.weight_rounding).has_value()});
  update_batches([&](const Batch& batch) { count_updates(scalars, batch, all); });
  sum_over_ranks(all, ranks_);
  return all;
}

void Optimizer::count_updates(const StepScalars& scalars, const Batch& batch,
                              std::vector<UpdateStatistics>& sums) {
  const BatchCall call = call_of(batch);
  for (size_t i = 0; i < batch.targets.size(); ++i) {
    UpdateStatistics& sum = sums[batch.targets[i]];
    const int64_t rows = ops_->counter_rows(call.tensors[i].range().count);
    const Tensor counters = counters_.on_device.row_range(0, rows);
    batch.update->count(scalars, call, i, counters);
    device_.download(counters, counters_.on_host.data());
    for (int64_t row = 0; row < counters.rows; ++row) {
      UpdateCounters one;
      memcpy(&one, counters_.on_host.data() + row * counters.cols, sizeof one);
      add_counters(one, sum);
    }
  }
}

BatchCall Optimizer::call_of(const Batch& batch) const {
  return {.tensors = batch.slots,
          .table = update_table_.tensor.data + batch.table_offset,
          .control = norm_.device_control(),
          .maxima_of_blocks = scales_.maxima_of_blocks()};
}

TensorScalars Optimizer::tensor_scalars(size_t index) const {
  return {.rank = targets_[index].weights.rank,
          .weight_unit = states_.init_rms(index),
          .moments = states_[index].source,
          .table = rule_table_.tensor.as<float>()};
}

BatchStorage Optimizer::storage_of(size_t index) const {
  const WeightFormat format = targets_[index].weights.encoding.format;
  // Unscaled formats share one codec.
  return {.format = is_scaled(format) ? format : plain_format(DType::kF32),
          .errors = rounding_errors(config_)};
}

DitherSource Optimizer::dither(size_t target, int64_t update, RandomStream stream,
                               Rounding rounding) const {
  return {.rounding = rounding,
          .seed = options_.seed,
          .tensor = targets_[target].tensor_id,
          .step = uint32_t(update),
          .stream = stream,
          .carry = config_.sr_saturate ? Carry::kSaturates : Carry::kToInfinity};
}

TensorSlot Optimizer::slot_of(size_t index, int64_t update) const {
  const UpdateTarget& target = targets_[index];
  const TargetStates& states = states_[index];
  // FP32 is stored unchanged and needs no random draws.
  const bool random = config_.weight_rounding == WeightRounding::kStochastic &&
                      target.weights.encoding.format != plain_format(DType::kF32);
  TensorSlot slot{.weights = target.weights,
                  .states = states.moments,
                  .state_dithers = {},
                  .state_update = options_.state_update,
                  .gradient = target.gradient,
                  .weight_dither = dither(index, update, kWeightRoundingStream,
                                          random ? Rounding::kStochastic : Rounding::kNearest),
                  .scalars = tensor_scalars(index),
                  .blocks = states.blocks,
                  .residuals = states.residuals};
  for (const StateInfo& info : states.infos)
    slot.state_dithers.push_back(dither(index, update, info.rounding, options_.state_rounding));
  scales_.complete(index, slot);
  if (states.projected())
    slot.factors = factors_of(projections_.call(index, target, states, norm_.device_control()));
  if (states.orthogonalized())
    slot.factors = orthogonalization_.factors({target.weights.rows, target.weights.cols});
  return slot;
}

// --- checkpoints ---------------------------------------------------------------------------------

std::vector<TensorPart> Optimizer::parts_to_save() const {
  return ranks_.is_root() ? parts_to_load() : states_.parts_of_targets();
}

std::vector<TensorPart> Optimizer::parts_to_load() const { return states_.all_parts(); }

std::vector<NamedTensor> Optimizer::named_states() const {
  std::vector<NamedTensor> named;
  for (TensorPart& part : parts_to_load()) {
    check(part.is_whole(), "elements [{}, +{}) of {}; expected all", part.first, part.count,
          part.whole.name);
    named.push_back(std::move(part.whole));
  }
  return named;
}

int64_t Optimizer::optimizer_state_bytes() const {
  int64_t bytes = 0;
  for (const TensorPart& part : states_.parts_of_targets())
    bytes += part.count * size_of(part.whole.tensor.dtype);
  return bytes;
}

}  // namespace mpt
