#include "train/run_model.h"

#include <algorithm>

#include "device/backends.h"
#include "model/parameters.h"
#include "train/checkpoint_files.h"

namespace mpt {
namespace {

BatchShape micro_batch(const RunConfig& config, int64_t ranks) {
  return {rank_step(config.batch, ranks).micro_batch_rows, config.batch.seq_len};
}

// Gradients that other ranks add to in FP32 are kept in it.
int64_t additions(const RunConfig& config, int64_t ranks) {
  const bool exchanged_in_fp32 = ranks > 1 && config.distributed.gradient_reduce == Format::kF32;
  return rank_step(config.batch, ranks).micro_batches * (exchanged_in_fp32 ? ranks : 1);
}

WeightOptions weight_options(const RunConfig& config, Backend backend, int64_t ranks) {
  const int64_t chunk = loss_chunk_rows(config, backend, ranks), tokens = micro_batch(config, ranks).tokens();
  return {.storage = activation_dtype(config.precision.compute),
          .gradient = dtype_of(config.precision.gradient),
          .additions = additions(config, ranks),
          .head_additions = (tokens + chunk - 1) / chunk,
          .linears = linear_encoding(config.precision),
          .linear_copies =
              config.precision.compute == ComputeFormat::kFp8 ? LinearCopies::kNone : LinearCopies::kDecoded};
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
          .micro_batches = rank_step(config.batch, ranks).micro_batches};
}

OptimizerOptions optimizer_options_of(const RunConfig& config, const UnitPartition* partition,
                                      const RunRanks& ranks) {
  OptimizerOptions options = optimizer_options(config.precision, config.seed);
  options.survey = config.log.update_survival > 0 ? Survey::kOnDemand : Survey::kNever;
  if (partition != nullptr) options.shard = {partition, ranks.shape.rank, ranks.collectives};
  return options;
}

std::optional<UnitPartition> sharding_of(const RunConfig& config, RankShape shape) {
  if (shape.alone() || config.distributed.sharding == Sharding::kNone) return std::nullopt;
  return partition_of(config, shape.size);
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

RunModel::RunModel(const RunConfig& config, Device& device, Allocator& allocator, const RunRanks& ranks)
    : weights(llama_parameters(config.model), weight_options(config, device.backend(), ranks.shape.size),
              device, allocator),
      llama(config.model, llama_options(config, device.backend(), ranks.shape.size), weights, device,
            allocator),
      partition(sharding_of(config, ranks.shape)),
      optimizer(config.optimizer, optimizer_options_of(config, partition ? &*partition : nullptr, ranks),
                update_targets(weights), device, allocator),
      shape_(ranks.shape) {
  if (!ranks.shape.alone())
    data_parallel =
        std::make_unique<DataParallel>(config, ranks.shape, DataParallel::Model{weights, llama, optimizer},
                                       device, allocator, ranks.collectives);
}

namespace {

template <class Part>
void append(std::vector<Part>& all, std::vector<Part> more) {
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace

std::vector<NamedTensor> RunModel::replicated_tensors() const {
  std::vector<NamedTensor> all = weights.named_tensors();
  append(all, llama.named_states());
  return all;
}

std::vector<NamedTensor> RunModel::named_tensors() const {
  std::vector<NamedTensor> all = weights.named_tensors();
  append(all, optimizer.named_states());
  append(all, llama.named_states());
  return all;
}

std::vector<TensorPart> RunModel::parts_to_save() const {
  if (!partition && !shape_.leads()) return {};  // all ranks hold the same
  std::vector<TensorPart> all =
      partition ? weights.named_parts(*partition, shape_.rank) : whole_parts(weights.named_tensors());
  append(all, optimizer.parts_to_save());
  return all;
}

std::vector<TensorPart> RunModel::changing_parts() const {
  return shape_.leads() ? whole_parts(llama.named_states()) : std::vector<TensorPart>();
}

std::vector<TensorPart> RunModel::parts_to_load() const {
  std::vector<TensorPart> all = whole_parts(replicated_tensors());
  append(all, optimizer.parts_to_load());
  return all;
}

void RunModel::weights_changed() {
  weights.refresh();
  llama.weights_changed();
}

Backend backend_of(const DeviceConfig& config) {
  if (config.type == DeviceType::kAuto) return available_backend();
  return config.type == DeviceType::kCuda ? Backend::kCuda : Backend::kCpu;
}

namespace {

DeviceOptions device_options(const DeviceConfig& config) {
  return {.backend = backend_of(config),
          .threads = int(config.threads),
          .cuda = {.index = int(config.gpu),
                   .graphs = config.cuda_graph ? CudaGraphs::kOn : CudaGraphs::kOff,
                   .tuning = config.tune_products ? GemmTuning::kOn : GemmTuning::kOff,
                   .attention = config.cuda_attention}};
}

}  // namespace

std::unique_ptr<Device> make_device(const DeviceConfig& config) {
  return make_device(device_options(config));
}
std::string why_unavailable(const DeviceConfig& config) { return why_unavailable(device_options(config)); }
std::unique_ptr<Device> make_planning_device(const DeviceConfig& config) {
  const DeviceOptions options = device_options(config);
  return why_unavailable(options).empty() ? make_device(options) : make_planning_device(options);
}

int64_t loss_chunk_rows(const RunConfig& config, Backend backend, int64_t ranks) {
  const BatchShape shape = micro_batch(config, ranks);
  const int64_t rows = config.train.loss_chunk_rows;
  return rows > 0 ? std::min(rows, shape.tokens()) : default_loss_chunk_rows(config.model, shape, backend);
}

MemoryUse planned_memory(const RunConfig& config, Device& device, RankShape shape) {
  PlanningAllocator allocator(device.alignment());
  const RunModel model(config, device, allocator, {.shape = shape});
  return allocator.use();
}

ExchangeVolume exchange_volume(const RunConfig& config, Device& device, RankShape shape) {
  PlanningAllocator allocator(device.alignment());
  const RunModel model(config, device, allocator, {.shape = shape});
  return model.data_parallel->volume();
}

ExchangePlan exchange_plan(const RunConfig& config, Device& device, RankShape shape) {
  PlanningAllocator allocator(device.alignment());
  const RunModel model(config, device, allocator, {.shape = shape});
  const ParameterExchange& exchange = model.data_parallel->exchange();
  ExchangePlan plan{.volume = model.data_parallel->volume(),
                    .own_elements = exchange.partition().elements(shape.rank),
                    .buckets = exchange.summary()};
  for (int64_t rank = 0; rank < shape.size; ++rank)
    plan.most_elements = std::max(plan.most_elements, exchange.partition().elements(rank));
  return plan;
}

}  // namespace mpt
