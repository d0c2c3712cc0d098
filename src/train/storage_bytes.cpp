#include "train/storage_bytes.h"

#include "model/parameters.h"
#include "train/run_model.h"

namespace mpt {
namespace {

int64_t weight_bytes(const WeightStore& weights) {
  int64_t bytes = 0;
  for (size_t i = 0; i < weights.specs().size(); ++i) bytes += weights.master(int64_t(i)).logical_bytes();
  return bytes;
}

// Block scales of FP8 are not counted, those of NVFP4 are.
double nominal_weight_bytes(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return 4;
    case WeightFormat::kBF16:
      return 2;
    case WeightFormat::kBlockFp8:
      return 1;
    case WeightFormat::kNvfp4:
      break;
  }
  return 0.5 + 1.0 / double(kNvfp4Block);
}

// Dense states are whole bytes a parameter; those of Apollo-E depend on the shapes.
double nominal_state_bytes(const RunConfig& config, int64_t logical_bytes) {
  if (config.optimizer.apollo_e != ApolloE::kOff)
    return double(logical_bytes) / double(parameter_count(config.model));
  const auto states = int64_t(rule_states(config.optimizer).size());
  const int64_t residual = config.optimizer.writeback == Writeback::kKahan ? size_of(DType::kBF16) : 0;
  return double(states * size_of(dtype_of(config.precision.optimizer_state)) + residual);
}

}  // namespace

StorageBytes storage_bytes(const RunConfig& config, Device& device) {
  PlanningAllocator allocator(device.alignment());
  const RunModel model(config, device, allocator);
  const MemoryUse& use = allocator.use();
  const int64_t states = model.optimizer.optimizer_state_bytes();
  return {.nominal_weights = nominal_weight_bytes(config.precision.weights),
          .nominal_states = nominal_state_bytes(config, states),
          .nominal_gradient = double(size_of(dtype_of(config.precision.gradient))),
          .logical_weights = weight_bytes(model.weights),
          .logical_states = states,
          .allocated_weights = use.of(Purpose::kWeights),
          .allocated_states = use.of(Purpose::kOptimizerState),
          .allocated_gradients = use.of(Purpose::kGradients)};
}

}  // namespace mpt
