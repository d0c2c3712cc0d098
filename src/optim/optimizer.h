// The optimizer of a run: its rule, its states and their step over all tensors.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/named_tensor.h"
#include "core/param_spec.h"
#include "device/device.h"
#include "optim/optimizer_config.h"
#include "optim/rule_factory.h"
#include "optim/update_ops.h"

namespace mpt {

// A parameter as the optimizer sees it: logical views of its weights and gradient.
struct UpdateTarget {
  std::string name;
  ParamKind kind;
  uint32_t tensor_id;  // of random counters
  EncodedTensor weights;
  Tensor gradient;
};

class Optimizer {
 public:
  // All states are planned (or allocated, as zeros) here.
  Optimizer(const OptimizerConfig& config, DType state, std::vector<UpdateTarget> targets, Device& device,
            Allocator& allocator);

  // To be called once when the initial weights are in place; not after loading a checkpoint.
  void weights_initialized();
  // To be called after states were loaded from a checkpoint.
  void states_loaded();

  // The norm of all gradients together, from FP64 sums in an order that depends on shapes alone.
  double grad_norm();
  // Updates all weights and states from the gradients.
  void step(const StepScalars& scalars);

  // Every state as "<state>/<parameter>", and what else a checkpoint must hold.
  [[nodiscard]] std::vector<NamedTensor> named_states() const;

 private:
  double sum_of_squares(const Tensor& tensor);

  OptimizerConfig config_;
  std::vector<UpdateTarget> targets_;
  Device& device_;
  std::unique_ptr<UpdateOps> ops_;
  std::vector<std::string_view> state_names_;
  std::vector<std::vector<Tensor>> states_;  // [target][state]
  Tensor partial_;                           // [1, most pieces of a tensor] fp64
  Tensor init_rms_;                          // [1, targets] fp32: RMS of the initial weights
  Tensor exponent_table_;                    // [1, 2 entries] fp32
  std::vector<double> host_partial_;
  std::vector<float> host_init_rms_;
};

// min(1, clip / (norm + 1e-6)); 1 when clipping is off (clip = 0). A norm that is NaN gives NaN, never "no
// clipping".
float clip_scale(double clip_grad_norm, double norm);

}  // namespace mpt
