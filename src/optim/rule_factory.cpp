#include "optim/rule_factory.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace mpt {
namespace {

constexpr float kUnbounded = std::numeric_limits<float>::infinity();

float bound_or_off(double bound) { return bound > 0 ? float(bound) : kUnbounded; }

float correction(const OptimizerConfig& config, float beta, int64_t t) {
  return config.bias_correction ? float(1.0 - std::pow(double(beta), double(t))) : 1.0f;
}

AdamMoments moments_of(const OptimizerConfig& config, const StepScalars& step) {
  const float beta1 = float(config.beta1), beta2 = float(config.beta2);
  return {.beta1 = beta1,
          .beta2 = beta2,
          .one_minus_beta1 = 1.0f - beta1,
          .one_minus_beta2 = 1.0f - beta2,
          .correction1 = correction(config, beta1, step.t),
          .correction2 = correction(config, beta2, step.t),
          .eps = float(config.eps)};
}

bool decays(const OptimizerConfig& config, const TensorScalars& tensor) {
  return tensor.rank > 1 || config.weight_decay_norms;
}

Madam madam(const OptimizerConfig& config, const StepScalars& step, const TensorScalars& tensor) {
  check(step.lr_multiplicative * config.g_bound <= Madam::kMostExponent,
        "madam with a rate of {} and a bound of {}: their product is at most {}", step.lr_multiplicative,
        config.g_bound, Madam::kMostExponent);
  const float beta2 = float(config.beta2);
  return {.beta2 = beta2,
          .one_minus_beta2 = 1.0f - beta2,
          .correction2 = correction(config, beta2, step.t),
          .lr = float(step.lr_multiplicative),
          .direction_bound = float(config.g_bound),
          .weight_bound = float(config.p_scale) * tensor.weight_unit};
}

template <class Decay, class Direction>
MPlusAdam<Decay, Direction> m_plus_adam(const OptimizerConfig& config, const StepScalars& step,
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

template <class Direction>
AnyRule any_m_plus_adam(const OptimizerConfig& config, const StepScalars& step, const TensorScalars& tensor,
                        const float* table) {
  const bool exponent = needs_exponent_table(config), applies = decays(config, tensor);
  if (exponent && applies)
    return m_plus_adam<ExponentDecay, Direction>(config, step, tensor,
                                                 ExponentDecay{table, table + ExponentDecay::kEntries});
  const double amount = applies && !exponent ? multiplicative_decay(config, step) : 0.0;
  return m_plus_adam<ScaleDecay, Direction>(config, step, tensor, ScaleDecay{float(amount)});
}

}  // namespace

bool needs_initial_rms(const OptimizerConfig& config) {
  switch (config.rule) {
    case UpdateRule::kMadam:
      return true;
    case UpdateRule::kMPlusAdam:
      return config.clip_weight > 0 && config.clip_weight_mode == ClipWeightMode::kInitRms;
    case UpdateRule::kAdamW:
      break;
  }
  return false;
}

std::vector<RuleState> rule_states(const OptimizerConfig& config, Moments moments) {
  const RuleState m{"m", Stream::kMomentumRounding}, v{"v", Stream::kVarianceRounding};
  if (config.rule == UpdateRule::kMadam) return {v};
  if (config.rule == UpdateRule::kAdamW || moments == Moments::kProjected) return {m, v};
  return {m, v, {"v_e", Stream::kExponentVarianceRounding}};
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
  if (config.rule == UpdateRule::kMadam) return madam(config, step, tensor);
  if (config.rule == UpdateRule::kAdamW)
    return AdamW{.moments = moments_of(config, step),
                 .lr = float(step.lr_additive),
                 .weight_decay = decays(config, tensor) ? float(config.weight_decay_additive) : 0.0f};
  if (tensor.moments == Moments::kProjected)
    return any_m_plus_adam<ProjectedDirection>(config, step, tensor, table);
  return any_m_plus_adam<DenseDirection>(config, step, tensor, table);
}

KahanPerOpAdamW make_per_op_adamw(const OptimizerConfig& config, const StepScalars& step,
                                  const TensorScalars& tensor) {
  const double decay = decays(config, tensor) ? config.weight_decay_additive : 0.0;
  const auto correction_of = [&](double beta) {
    return config.bias_correction ? 1.0 - std::pow(beta, double(step.t)) : 1.0;
  };
  return {.moments = moments_of(config, step),
          .kept = float(1.0 - step.lr_additive * decay),
          .step_size = float(step.lr_additive / correction_of(config.beta1)),
          .root_correction = float(std::sqrt(correction_of(config.beta2)))};
}

ProjectionScalars make_projection_scalars(const OptimizerConfig& config, const StepScalars& step,
                                          const ProjectionShape& shape) {
  const AdamMoments moments = moments_of(config, step);
  const double spread = std::sqrt(double(shape.depth) / double(config.apollo_e_rank));
  return {.beta2 = moments.beta2,
          .one_minus_beta2 = moments.one_minus_beta2,
          .correction2 = moments.correction2,
          .eps = float(config.eps * spread),
          .scale = config.apollo_e_scale == ApolloEScale::kRms ? float(spread) : 1.0f};
}

}  // namespace mpt
