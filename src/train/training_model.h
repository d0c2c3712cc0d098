// A model with its optimizer as a run's config describes them, all memory taken from one allocator.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "config/run_config.h"
#include "device/device.h"
#include "model/llama.h"
#include "optim/optimizer.h"
#include "parallel/data_parallel.h"

namespace mpt {

// Every parameter with its gradient, for an optimizer.
std::vector<UpdateTarget> update_targets(const WeightStore& weights);

struct RunModel {
  WeightStore weights;
  Llama llama;
  Partition partition;  // of what optimizers update, over the ranks; over one where each updates everything
  Optimizer optimizer;
  DataParallel data_parallel;

  // With a PlanningAllocator nothing is allocated and nothing may be run. `ranks` outlives this.
  RunModel(const RunConfig& config, Device& device, Allocator& allocator,
           Communicator& ranks = Communicator::single());

  // What a checkpoint holds as tensors: weights, optimizer states, scales of FP8 operands. To save: what this
  // rank gives of all that changes in updates only, and of the small rest; together the ranks give every
  // element once. To load: what this rank needs.
  [[nodiscard]] std::vector<TensorPart> parts_to_save() const;
  [[nodiscard]] std::vector<TensorPart> changing_parts() const;
  [[nodiscard]] std::vector<TensorPart> parts_to_load() const;
  // All of it, of a rank alone.
  [[nodiscard]] std::vector<NamedTensor> named_tensors() const;
  // What all ranks hold the same of: weights and scales.
  [[nodiscard]] std::vector<NamedTensor> replicated_tensors() const;
  // To be called when the weights are set: products read the new ones from then on.
  void weights_changed();
  // Makes weights that other ranks have updated, and what follows from them, new. To be called between a step
  // and what else reads them.
  void publish_weights() { data_parallel.publish(); }
};

// Rows whose logits exist at one time: the configured number or the automatic one, at most a micro-batch.
int64_t loss_chunk_rows(const RunConfig& config, Backend backend, int64_t ranks = 1);

// Bytes by purpose that training with this config takes on the device, for this rank. Nobody is asked.
MemoryUse planned_memory(const RunConfig& config, Device& device,
                         const Communicator& ranks = Communicator::single());
// What this rank sends in a step, counting every part once for each rank that it goes to. Nobody is asked.
ExchangeVolume exchange_volume(const RunConfig& config, Device& device, const Communicator& ranks);

// The same, and of what it consists.
struct ExchangePlan {
  ExchangeVolume volume;
  int64_t own_elements = 0,
          most_elements = 0;  // of the parameters that this rank owns, and the one with most
  std::vector<BucketSummary> buckets{};
};
ExchangePlan exchange_plan(const RunConfig& config, Device& device, const Communicator& ranks);

}  // namespace mpt
