#include "train/step/training_model.h"

#include <algorithm>

#include "checkpoint/checkpoint_files.h"
#include "config/batch_plan.h"
#include "config/run_device.h"
#include "device/attention.h"
#include "device/backends.h"
#include "model/parameters.h"

namespace mpt {
namespace {

BatchShape micro_batch(const RunConfig& config, int64_t ranks) {
  return {batch_plan(config.batch, 0, ranks).micro_batch_rows, config.batch.seq_len};
}

// Returns how many FP32 contributions are summed into a gradient: micro-batches, times ranks if
// they exchange FP32.
int64_t additions(const RunConfig& config, int64_t ranks) {
  const bool exchanged_in_fp32 = ranks > 1 && config.distributed.gradient_reduce == Format::kF32;
  return batch_plan(config.batch, 0, ranks).most_micro_batches * (exchanged_in_fp32 ? ranks : 1);
}

WeightOptions weight_options(const RunConfig& config, Backend backend, int64_t ranks) {
  const int64_t chunk = loss_chunk_rows(config, backend, ranks),
                tokens = micro_batch(config, ranks).tokens();
  return {.storage = activation_dtype(config.precision.compute),
          .gradient = dtype_of(config.precision.gradient),
          .additions = additions(config, ranks),
          .head_additions = (tokens + chunk - 1) / chunk,
          .linears = linear_encoding(config.precision),
          .linear_copies = config.precision.compute == ComputeFormat::kFp8
                               ? LinearCopies::kNone
                               : LinearCopies::kDecoded};
}

LlamaOptions llama_options(const RunConfig& config, Backend backend, int64_t ranks) {
  const bool recompute = config.train.activation_recompute == ActivationRecompute::kBlock;
  return {.micro_batch = micro_batch(config, ranks),
          .storage = activation_dtype(config.precision.compute),
          .loss_chunk_rows = loss_chunk_rows(config, backend, ranks),
          .recompute = recompute ? Recompute::kBlock : Recompute::kNone,
          .keep = Keep::kForBackward,
          .fp8 = fp8_of(config.precision),
          .multiply = multiply_of(config.precision),
          .micro_batches = batch_plan(config.batch, 0, ranks).most_micro_batches,
          .weight_codes = weight_codes_of(config.device, backend),
          .attention = config.data.attention,
          .z_loss = float(config.train.z_loss)};
}

OptimizerOptions optimizer_options_of(const RunConfig& config) {
  OptimizerOptions options = optimizer_options(config.precision, config.seed);
  options.statistics =
      config.log.update_statistics > 0 ? StepStatistics::kOnDemand : StepStatistics::kNever;
  return options;
}

// Returns the ranks that share the optimizer's work; a single one if each rank updates everything.
Communicator& sharing_ranks(const RunConfig& config, Communicator& ranks) {
  return config.distributed.sharding == Sharding::kNone ? Communicator::single() : ranks;
}

}  // namespace

std::vector<UpdateTarget> update_targets(const WeightStore& weights) {
  std::vector<UpdateTarget> targets;
  for (size_t i = 0; i < weights.specs().size(); ++i) {
    const ParamSpec& spec = weights.specs()[i];
    targets.push_back({.name = spec.name,
                       .kind = spec.kind,
                       .tensor_id = spec.tensor_id,
                       .weights = weights.master(int64_t(i)),
                       .gradient = logical_view(spec, weights.gradient(int64_t(i)))});
  }
  return targets;
}

TrainingModel::TrainingModel(const RunConfig& config, Device& device, Allocator& allocator,
                             Communicator& ranks)
    : weights(llama_parameters(config.model),
              weight_options(config, device.backend(), ranks.size()), device, allocator),
      llama(config.model, llama_options(config, device.backend(), ranks.size()), weights, device,
            allocator),
      partition(partition_of(config, sharing_ranks(config, ranks).size())),
      optimizer(config.optimizer, optimizer_options_of(config), update_targets(weights),
                {.partition = partition,
                 .ranks = sharing_ranks(config, ranks),
                 .device = device,
                 .allocator = allocator}),
      data_parallel(config, {.weights = weights, .llama = llama, .optimizer = optimizer},
                    {.ranks = ranks, .device = device, .allocator = allocator}) {
  if (config.train.ema_decay > 0)
    ema.emplace(weights, config.train.ema_decay,
                WeightEma::Place{.partition = partition,
                                 .rank = sharing_ranks(config, ranks).rank(),
                                 .device = device,
                                 .allocator = allocator});
}

namespace {

template <class Part>
void append(std::vector<Part>& all, std::vector<Part> more) {
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace

std::vector<NamedTensor> TrainingModel::replicated_tensors() const {
  std::vector<NamedTensor> all = weights.named_tensors();
  append(all, llama.named_states());
  return all;
}

std::vector<NamedTensor> TrainingModel::named_tensors() const {
  std::vector<NamedTensor> all = weights.named_tensors();
  append(all, optimizer.named_states());
  append(all, llama.named_states());
  if (ema)
    for (TensorPart& part : ema->parts()) all.push_back(std::move(part.whole));
  return all;
}

std::vector<TensorPart> TrainingModel::parts_to_save() const {
  const Communicator& ranks = data_parallel.ranks();
  const bool cut = partition.ranks() > 1;
  if (!cut && !ranks.is_root()) return {};  // all ranks hold the same
  std::vector<TensorPart> all =
      cut ? weights.named_parts(partition, ranks.rank()) : whole_parts(weights.named_tensors());
  append(all, optimizer.parts_to_save());
  if (ema) append(all, ema->parts());
  return all;
}

std::vector<TensorPart> TrainingModel::changing_parts() const {
  return data_parallel.ranks().is_root() ? whole_parts(llama.named_states())
                                         : std::vector<TensorPart>();
}

std::vector<TensorPart> TrainingModel::parts_to_load() const {
  std::vector<TensorPart> all = whole_parts(replicated_tensors());
  append(all, optimizer.parts_to_load());
  if (ema) append(all, ema->parts());
  return all;
}

void TrainingModel::follow_weights(int64_t step) {
  if (!ema) return;
  all_gather_weights();
  ema->follow(step);
}

void TrainingModel::weights_changed() {
  weights.decode_weights();
  llama.update_casts();
}

int64_t loss_chunk_rows(const RunConfig& config, Backend backend, int64_t ranks) {
  const BatchShape shape = micro_batch(config, ranks);
  const int64_t rows = config.train.loss_chunk_rows;
  return rows > 0 ? std::min(rows, shape.tokens())
                  : default_loss_chunk_rows(config.model, shape, backend);
}

std::string attention_in_use(const RunConfig& config, Device& device, int64_t ranks) {
  const BatchShape shape = micro_batch(config, ranks);
  return device.attention().in_use({.batch = shape.rows,
                                    .seq_len = shape.seq_len,
                                    .heads = config.model.num_attention_heads,
                                    .key_value_heads = config.model.key_value_heads(),
                                    .head_dim = config.model.head_dim(),
                                    .scope = config.data.attention},
                                   activation_dtype(config.precision.compute));
}

namespace {

// Calls read(model, allocator) with the model that this rank would train, in planned memory.
template <class Read>
auto of_planned_model(const RunConfig& config, Device& device, const Communicator& ranks,
                      Read read) {
  PlanningAllocator allocator(device.alignment());
  Communicator planned = Communicator::planned(ranks.rank(), ranks.size());
  const TrainingModel model(config, device, allocator, planned);
  return read(model, allocator);
}

}  // namespace

MemoryUse planned_memory(const RunConfig& config, Device& device, const Communicator& ranks) {
  return of_planned_model(
      config, device, ranks,
      [](const TrainingModel&, const PlanningAllocator& allocator) { return allocator.use(); });
}

ExchangePlan exchange_plan(const RunConfig& config, Device& device, const Communicator& ranks) {
  return of_planned_model(
      config, device, ranks, [&](const TrainingModel& model, const PlanningAllocator&) {
        const BucketExchange& exchange = model.data_parallel.exchange();
        ExchangePlan plan{.volume = model.data_parallel.volume(),
                          .own_elements = exchange.partition().elements(ranks.rank()),
                          .buckets = exchange.summary()};
        for (int64_t rank = 0; rank < ranks.size(); ++rank)
          plan.most_elements = std::max(plan.most_elements, exchange.partition().elements(rank));
        if (model.ema) plan.volume.weights *= 2;  // once for the mean, once for the next step
        return plan;
      });
}

}  // namespace mpt
