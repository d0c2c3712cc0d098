#include "optim/rule_factory.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace mpt {
namespace {

constexpr float kUnbounded = std::numeric_limits<float>::infinity();

float bound_or_off(double bound) { return bound > 0 ? float(bound) : kUnbounded; }

AdamMoments moments_of(const OptimizerConfig& config, const StepScalars& step) {
  const float beta1 = float(config.beta1), beta2 = float(config.beta2);
  const auto correction = [&](float beta) {
    return config.bias_correction ? float(1.0 - std::pow(double(beta), double(step.t))) : 1.0f;
  };
  return {.beta1 = beta1,
          .beta2 = beta2,
          .one_minus_beta1 = 1.0f - beta1,
          .one_minus_beta2 = 1.0f - beta2,
          .correction1 = correction(beta1),
          .correction2 = correction(beta2),
          .eps = float(config.eps)};
}

bool decays(const OptimizerConfig& config, const TensorScalars& tensor) {
  return tensor.rank > 1 || config.weight_decay_norms;
}

template <class Decay>
MPlusAdam<Decay> m_plus_adam(const OptimizerConfig& config, const StepScalars& step,
                             const TensorScalars& tensor, const Decay& decay) {
  const double d = config.clip_exponent_step, r = config.clip_relative_step;
  return {
      .moments = moments_of(config, step),
      .lr_additive = float(step.lr_additive),
      .weight_decay = decays(config, tensor) ? float(config.weight_decay_additive) : 0.0f,
      .lr_multiplicative = float(step.lr_multiplicative),
      .tau = float(config.tau),
      .direction_bound = bound_or_off(config.clip_multiplicative_direction),
      .relative_step_low = r > 0 ? -(float(r) - 1e-6f) : -kUnbounded,
      .relative_step_high = bound_or_off(r),
      .exponent_step_low = d > 0 ? float(std::exp2(-d) - 1.0) : -kUnbounded,
      .exponent_step_high = d > 0 ? float(std::exp2(d) - 1.0) : kUnbounded,
      .weight_bound = config.clip_weight > 0 ? float(config.clip_weight) * tensor.weight_unit : kUnbounded,
      .decay = decay};
}

// lr wd of the multiplicative branch: the FP32 rate of the step times the decay as configured.
double multiplicative_decay(const OptimizerConfig& config, const StepScalars& step) {
  return double(float(step.lr_multiplicative)) * config.weight_decay_multiplicative;
}

}  // namespace

std::vector<std::string_view> state_names(const OptimizerConfig& config) {
  if (config.rule == UpdateRule::kAdamW) return {AdamW::kStates.begin(), AdamW::kStates.end()};
  return {MPlusAdam<ScaleDecay>::kStates.begin(), MPlusAdam<ScaleDecay>::kStates.end()};
}

bool needs_exponent_table(const OptimizerConfig& config) {
  return config.rule == UpdateRule::kMPlusAdam && config.weight_decay_multiplicative > 0 &&
         config.weight_decay_multiplicative_mode == MultiplicativeDecay::kExponent;
}

std::vector<float> exponent_decay_table(const OptimizerConfig& config, const StepScalars& step) {
  std::vector<float> table(2 * ExponentDecay::kEntries);
  const double decay = multiplicative_decay(config, step);
  for (int entry = 0; entry < ExponentDecay::kEntries; ++entry) {
    const double x = -decay * double(entry + ExponentDecay::kLowest);
    table[size_t(entry)] = float(std::exp2(x));
    table[size_t(entry + ExponentDecay::kEntries)] = float(std::expm1(x * std::numbers::ln2));
  }
  return table;
}

AnyRule make_rule(const OptimizerConfig& config, const StepScalars& step, const TensorScalars& tensor,
                  const float* table) {
  if (config.rule == UpdateRule::kAdamW)
    return AdamW{.moments = moments_of(config, step),
                 .lr = float(step.lr_additive),
                 .weight_decay = decays(config, tensor) ? float(config.weight_decay_additive) : 0.0f};
  const bool exponent = needs_exponent_table(config) && decays(config, tensor);
  if (exponent)
    return m_plus_adam(config, step, tensor, ExponentDecay{table, table + ExponentDecay::kEntries});
  const bool scale = decays(config, tensor) && !needs_exponent_table(config);
  return m_plus_adam(config, step, tensor,
                     ScaleDecay{scale ? float(multiplicative_decay(config, step)) : 0.0f});
}

}  // namespace mpt
