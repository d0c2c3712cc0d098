#include "train/resources/storage_bytes.h"

#include <algorithm>

#include "checkpoint/checkpoint_parts.h"
#include "model/parameters.h"
#include "train/step/training_model.h"
#include "train/step_schedule.h"

namespace mpt {
namespace {

int64_t weight_bytes(const WeightStore& weights) {
  int64_t bytes = 0;
  for (size_t i = 0; i < weights.specs().size(); ++i)
    bytes += weights.master(int64_t(i)).logical_bytes();
  return bytes;
}

// Dense states take whole bytes per parameter; those of projected and orthogonalized matrices
// depend on the shapes.
double nominal_state_bytes(const RunConfig& config, int64_t logical_bytes) {
  const RuleConfig& rule = config.optimizer.rule;
  if (projection_options(rule) || orthogonalization_options(rule))
    return double(logical_bytes) / double(parameter_count(config.model));
  const auto states = int64_t(states_of(config.optimizer.rule).size());
  const auto info = residual_of(config.optimizer.weight_rounding);
  const int64_t residual = info ? size_of(info->dtype) : 0;
  return double(states * size_of(dtype_of(config.precision.optimizer_state)) + residual);
}

}  // namespace

StorageBytes storage_bytes(const RunConfig& config, Device& device) {
  PlanningAllocator allocator(device.alignment());
  const TrainingModel model(config, device, allocator);
  const MemoryUse& use = allocator.use();
  const int64_t states = model.optimizer.optimizer_state_bytes();
  return {.nominal_weights = nominal_bytes(config.precision.weights),
          .nominal_states = nominal_state_bytes(config, states),
          .nominal_gradient = double(size_of(dtype_of(config.precision.gradient))),
          .logical_weights = weight_bytes(model.weights),
          .logical_states = states,
          .allocated_weights = use.of(kWeightMemory),
          .allocated_states = use.of(kOptimizerStateMemory),
          .allocated_gradients = use.of(kGradientMemory)};
}

int64_t checkpoint_bytes(const RunConfig& config, Device& device) {
  PlanningAllocator allocator(device.alignment());
  const TrainingModel model(config, device, allocator);
  return bytes_of(model.parts_to_save()) + bytes_of(model.changing_parts());
}

int64_t checkpoints_kept(const RunConfig& config) {
  const CheckpointConfig& checkpoint = config.checkpoint;
  const DueSteps saved(config, checkpoint.every_steps);
  const int64_t last = std::min(checkpoint.keep_last, saved.count());
  if (checkpoint.keep_every_steps == 0) return last;
  const int64_t older = saved.count() - last;
  return last + (older == 0 ? 0 : saved.step(older)) / checkpoint.keep_every_steps;
}

int64_t checkpoints_at_most(const RunConfig& config) {
  const int64_t kept = checkpoints_kept(config);
  return kept + (DueSteps(config, config.checkpoint.every_steps).count() > kept);
}

}  // namespace mpt
