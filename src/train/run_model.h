// A model with its optimizer as a run's config describes them, all memory taken from one allocator.
#pragma once

#include <vector>

#include "device/device.h"
#include "model/llama.h"
#include "optim/optimizer.h"
#include "train/run_config.h"

namespace mpt {

// Every parameter with its gradient, for an optimizer.
std::vector<UpdateTarget> update_targets(const WeightStore& weights);

struct RunModel {
  WeightStore weights;
  Llama llama;
  Optimizer optimizer;

  // With a PlanningAllocator nothing is allocated and nothing may be run.
  RunModel(const RunConfig& config, Device& device, Allocator& allocator);

  // Everything that a checkpoint holds as tensors: weights, optimizer states, scales of FP8 operands.
  [[nodiscard]] std::vector<NamedTensor> named_tensors() const;
  // To be called when the weights are set, and at the end of every step: products read the new ones from
  // then on.
  void weights_changed();
};

// The backend that the config names.
Backend backend_of(const DeviceConfig& config);
// The device that the config names.
std::unique_ptr<Device> make_device(const DeviceConfig& config);
// One to plan for: the same, or where this machine has no such device one that only counts.
std::unique_ptr<Device> make_planning_device(const DeviceConfig& config);

// Rows whose logits exist at one time: the configured number or the automatic one, at most a micro-batch.
int64_t loss_chunk_rows(const RunConfig& config, Backend backend);

// Bytes by purpose that training with this config takes on the device.
MemoryUse planned_memory(const RunConfig& config, Device& device);

}  // namespace mpt
