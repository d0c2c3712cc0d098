// From an optimizer's configuration and the scalars of a step to the rule's FP32 constants
// (docs/numerics.md "Constants of a step").
#pragma once

#include <string_view>
#include <vector>

#include "optim/optimizer_config.h"
#include "optim/update_ops.h"

namespace mpt {

struct StepScalars {
  int64_t t = 0;           // optimizer step, from 1
  double lr_additive = 0;  // after the schedule
  double lr_multiplicative = 0;
  float grad_scale = 1.0f;  // from clipping the global norm
};

// Where the direction of M+Adam's multiplicative branch comes from.
enum class Moments : uint8_t { kDense, kProjected };

// What differs between tensors of one step.
struct TensorScalars {
  int rank = 2;              // decay applies to matrices only, unless configured
  float weight_unit = 1.0f;  // what clip_weight and p_scale are multiples of: 1, or the initial RMS
  Moments moments = Moments::kDense;
};

// True if bounds of weights are multiples of the tensor's initial RMS.
bool needs_initial_rms(const OptimizerConfig& config);

// A state of the rule: its name, and what its stochastic rounding draws from.
struct RuleState {
  std::string_view name;
  Stream stream;
};
// In the rule's order.
std::vector<RuleState> rule_states(const OptimizerConfig& config, Moments moments = Moments::kDense);

// True if the rule reads the tables that exponent_decay_table() fills.
bool needs_exponent_table(const OptimizerConfig& config);
// 2 * ExponentDecay::kEntries values: 2^x, then 2^x - 1, for the step's rate.
std::vector<float> exponent_decay_table(const OptimizerConfig& config, const StepScalars& step);

// `table` is that table in device memory, or null if it is not needed.
AnyRule make_rule(const OptimizerConfig& config, const StepScalars& step, const TensorScalars& tensor,
                  const float* table);
// For writeback = kahan with kahan_variant = per_op, which only adamw has.
KahanPerOpAdamW make_per_op_adamw(const OptimizerConfig& config, const StepScalars& step,
                                  const TensorScalars& tensor);
// For a matrix whose projection has this shape.
ProjectionScalars make_projection_scalars(const OptimizerConfig& config, const StepScalars& step,
                                          const ProjectionShape& shape);

}  // namespace mpt
