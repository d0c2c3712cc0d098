// From an optimizer's configuration and the scalars of a step to the rule's FP32 constants (NUMERICS
// "Optimizer frame").
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

// What differs between tensors of one step.
struct TensorScalars {
  int rank;           // decay applies to matrices only, unless configured
  float weight_unit;  // what clip_weight is a multiple of: 1, or the RMS of the initial weights
};

// State names of the configured rule, in its order.
std::vector<std::string_view> state_names(const OptimizerConfig& config);

// True if the rule reads the tables that exponent_decay_table() fills.
bool needs_exponent_table(const OptimizerConfig& config);
// 2 * ExponentDecay::kEntries values: 2^x, then 2^x - 1, for the step's rate.
std::vector<float> exponent_decay_table(const OptimizerConfig& config, const StepScalars& step);

// `table` is that table in device memory, or null if it is not needed.
AnyRule make_rule(const OptimizerConfig& config, const StepScalars& step, const TensorScalars& tensor,
                  const float* table);

}  // namespace mpt
