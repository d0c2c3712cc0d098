// A model and its optimizer, built from a run's config with all memory from one allocator.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "config/run_data.h"
#include "device/device.h"
#include "model/llama.h"
#include "model/weight_ema.h"
#include "optim/optimizer.h"
#include "ranks/communicator.h"
#include "train/step/data_parallel.h"
#include "train/stop_signal.h"

namespace mpt {

// Every parameter with its gradient, for an optimizer.
std::vector<UpdateTarget> update_targets(const WeightStore& weights);

struct TrainingModel {
  WeightStore weights;
  Llama llama;
  Partition partition;  // of updates over ranks; over one rank if each updates all
  Optimizer optimizer;
  DataParallel data_parallel;
  std::optional<WeightEma> ema;  // if the run keeps one

  // With a PlanningAllocator nothing is allocated and nothing may be run. All arguments but
  // `config` must outlive this object.
  TrainingModel(const RunConfig& config, Device& device, Allocator& allocator,
                Communicator& ranks = Communicator::single());

  // Tensors of a checkpoint: weights, optimizer states, FP8 scaling states. parts_to_save(): this
  // rank's share of tensors that change only in updates; changing_parts(): its share of the small
  // rest. Together the ranks supply every element once. parts_to_load(): what this rank needs.
  [[nodiscard]] std::vector<TensorPart> parts_to_save() const;
  [[nodiscard]] std::vector<TensorPart> changing_parts() const;
  [[nodiscard]] std::vector<TensorPart> parts_to_load() const;
  // All tensors of a checkpoint, for a single rank.
  [[nodiscard]] std::vector<NamedTensor> named_tensors() const;
  // Tensors that are identical on all ranks: weights and FP8 scaling states.
  [[nodiscard]] std::vector<NamedTensor> replicated_tensors() const;
  // Call after weights were set: refreshes what GEMMs read.
  void weights_changed();
  // Fetches weights that other ranks updated and refreshes what depends on them. Call after a step,
  // before anything but the next step reads weights.
  void all_gather_weights() { data_parallel.all_gather_weights(); }
  // Call after every step in turn, unless it was abandoned: moves the EMA of weights. Several ranks
  // fetch the weights for it, in addition to the fetch for the next step.
  void follow_weights(int64_t step);
};

// Rows whose logits exist at one time: the configured number or the automatic one, at most a
// micro-batch.
int64_t loss_chunk_rows(const RunConfig& config, Backend backend, int64_t ranks = 1);

// Returns Attention::in_use() for the run's attention; empty on a backend with only one.
std::string attention_in_use(const RunConfig& config, Device& device, int64_t ranks = 1);

// Returns the device memory, by purpose, that this rank needs to train. Does not communicate.
MemoryUse planned_memory(const RunConfig& config, Device& device,
                         const Communicator& ranks = Communicator::single());

// Exchange volume of this rank in a step. Does not communicate.
struct ExchangePlan {
  ExchangeVolume volume;  // bytes, counting every part once per receiving rank
  int64_t own_elements = 0,
          most_elements = 0;  // parameters this rank owns; the rank with most
  std::vector<BucketSummary> buckets{};
};
ExchangePlan exchange_plan(const RunConfig& config, Device& device, const Communicator& ranks);

}  // namespace mpt
