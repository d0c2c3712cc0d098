#include "train/step/data_parallel.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "config/batch_plan.h"
#include "config/run_config_json.h"
#include "core/check.h"
#include "core/io/code_file.h"
#include "core/io/file_system.h"
#include "core/io/hash.h"
#include "core/json/json_parse.h"
#include "device/device.h"
#include "model/parameters.h"

namespace mpt {
namespace {

// Offsets of each rank's losses (one per micro-batch) among all ranks' losses, and their total.
std::vector<int64_t> first_losses(const BatchConfig& batch, int64_t ranks) {
  std::vector<int64_t> first{0};
  for (int64_t rank = 0; rank < ranks; ++rank)
    first.push_back(first.back() + batch_plan(batch, rank, ranks).own_micro_batches);
  return first;
}

}  // namespace

DataParallel::DataParallel(const RunConfig& config, const Model& model, const Place& place)
    : config_(config.model),
      precision_(config.precision),
      sharding_(config.distributed.sharding),
      model_(model),
      device_(place.device),
      ranks_(place.ranks),
      exchange_(config, model.weights, place),
      fetched_(exchange_.buckets().size(), 0),
      reduced_(exchange_.buckets().size(), 0),
      new_(size_t(parameter_groups(config.model)), 1),
      micro_batches_(batch_plan(config.batch, ranks_.rank(), ranks_.size()).most_micro_batches),
      first_loss_(first_losses(config.batch, ranks_.size())) {
  if (!ranks_.is_single())
    losses_ = place.allocator.pinned(kLogitMemory, DType::kF64, 1, first_loss_.back());
  model_.llama.set_hooks(*this);
}

void DataParallel::wait(Event event) {
  const ProfileScope scope(device_, "communication");
  ranks_.wait(event);
}

void DataParallel::reduce_amax(const Tensor& values) { ranks_.all_reduce_max(values); }

size_t DataParallel::bucket_of(int64_t group) const {
  const auto& buckets = exchange_.buckets();
  return size_t(
      std::ranges::find_if(buckets, [=](const Bucket& b) { return group <= b.last_group(); }) -
      buckets.begin());
}

// --- volume --------------------------------------------------------------------------------------

ExchangeVolume DataParallel::volume() const {
  ExchangeVolume volume = exchange_.volume();
  const int64_t own_losses =
      first_loss_[size_t(ranks_.rank()) + 1] - first_loss_[size_t(ranks_.rank())];
  const int64_t others = ranks_.size() - 1;
  volume.norm = others * norm_bytes();
  volume.losses = others * own_losses * size_of(losses_.tensor.dtype);
  volume.scales = others * scale_bytes();
  return volume;
}

// Sums of squares per reduction tile. With sharding, each rank has only those of its own update
// blocks.
int64_t DataParallel::norm_bytes() const {
  if (!sharded()) return 0;
  int64_t tiles = 0;
  for (int64_t i = 0; i < exchange_.partition().tensors(); ++i)
    tiles +=
        (exchange_.partition().range(ranks_.rank(), i).count + kBlocksPerTile - 1) / kBlocksPerTile;
  return tiles * size_of(DType::kF64);
}

// Amaxes of FP8 operands, and of weights whose encoding needs the tensor's maximum.
int64_t DataParallel::scale_bytes() const {
  int64_t values = 0;
  if (sharded())
    for (size_t i = 0; i < model_.weights.specs().size(); ++i)
      values += needs_maximum(model_.weights.master(int64_t(i)).encoding) ? 1 : 0;
  if (precision_.compute == ComputeFormat::kFp8 && precision_.fp8_recipe == Fp8Recipe::kDelayed) {
    const int64_t linears = head_linear(config_) + (precision_.fp8_lm_head ? 1 : 0);
    values +=
        3 * linears * (precision_.fp8_amax_update == Cadence::kMicrobatch ? micro_batches_ : 1);
  }
  return values * size_of(DType::kF32);
}

// --- weights -------------------------------------------------------------------------------------

void DataParallel::begin_step() {
  last_micro_batch_ = false;
  end_step();
  if (!sharded()) return;
  for (size_t b = 0; b < fetched_.size(); ++b)
    fetched_[b] =
        ranks_.run([this, b](Transport& transport) { exchange_.gather_weights(transport, b); });
}

void DataParallel::before_use(int64_t group) {
  if (new_[size_t(group)]) return;
  if (sharded()) wait(fetched_[bucket_of(group)]);
  use_new_weights(group);
}

// Refreshes scales, decoded weights and casts of a group whose update blocks have all arrived.
void DataParallel::use_new_weights(int64_t group) {
  const ProfileScope scope(device_, "new weights");
  const ParameterRange own = parameters_of_group(config_, group);
  for (int64_t i = own.first; i < own.first + own.count; ++i) model_.optimizer.rescale(size_t(i));
  model_.weights.decode_weights(own.first, own.count);
  model_.llama.update_casts(group);
  new_[size_t(group)] = 1;
}

void DataParallel::end_update() {
  if (!ranks_.is_single()) return;
  const ProfileScope scope(device_, "new weights");
  model_.optimizer.rescale();
  model_.weights.decode_weights();
  model_.llama.update_casts();
}

void DataParallel::end_step() {
  if (!ranks_.is_single()) std::ranges::fill(new_, 0);
}

void DataParallel::all_gather_weights() {
  if (std::ranges::all_of(new_, [](char is_new) { return is_new != 0; })) return;
  begin_step();
  for (int64_t group = 0; group < std::ssize(new_); ++group) before_use(group);
  device_.synchronize();
}

// --- gradients -----------------------------------------------------------------------------------

// Groups, and thus buckets, complete from the last to the first.
void DataParallel::gradients_added(int64_t group) {
  if (!last_micro_batch_ || ranks_.is_single()) return;
  const size_t bucket = bucket_of(group);
  if (exchange_.buckets()[bucket].first_group != group) return;
  reduced_[bucket] = ranks_.run([this, bucket](Transport& transport) {
    exchange_.reduce_gradients(transport, bucket);
    if (!sharded()) exchange_.gather_gradients(transport, bucket);
  });
}

// With several ranks, sums were rounded when stored.
void DataParallel::finish_gradients() {
  if (ranks_.is_single()) return model_.llama.round_gradients();
  for (const Event event : reduced_) wait(event);
}

// --- losses --------------------------------------------------------------------------------------

Tensor DataParallel::gather_losses() {
  const auto part = [this](int64_t rank) {
    return losses_.tensor.columns(first_loss_[size_t(rank)],
                                  first_loss_[size_t(rank) + 1] - first_loss_[size_t(rank)]);
  };
  const Tensor mine = model_.llama.losses();
  if (ranks_.is_single()) return mine;
  wait(ranks_.run([=, this](Transport& transport) {
    std::vector<Tensor> parts;
    for (int64_t rank = 0; rank < ranks_.size(); ++rank) parts.push_back(part(rank));
    ranks_.comm_stream().copy(mine, part(ranks_.rank()));
    transport.all_gather(parts);
  }));
  device_.receive(losses_);
  return losses_.tensor;
}

double DataParallel::loss() const {
  if (ranks_.is_single()) return model_.llama.loss();
  const auto* sums = losses_.image<double>();
  return std::accumulate(sums, sums + losses_.tensor.cols, 0.0);
}

}  // namespace mpt
