// The keys of all rules together, for tests that iterate over rules and set keys without checking
// which rule has them.
#pragma once

#include <string>

#include "optim/optimizer_config.h"
#include "optim/rule_list.h"

namespace mpt::test {

struct FlatConfig {
  std::string rule = "adamw";
  WeightRounding weight_rounding = WeightRounding::kNearest;
  KahanVariant kahan_variant = KahanVariant::kFused;
  ErrorFeedbackMode error_feedback = ErrorFeedbackMode::kOff;
  bool sr_saturate = false;
  double clip_grad_norm = 1.0;
  double lr_additive = 0, lr_multiplicative = 0;
  Nvfp4AdditiveScale nvfp4_additive_scale = Nvfp4AdditiveScale::kOff;
  double beta1 = 0.9, beta2 = 0.98, eps = 1e-8;
  bool bias_correction = true;
  double weight_decay_additive = 0.1;
  bool weight_decay_norms = false;
  double gradient_ratio = 0.5;
  RelativeStep relative_step = RelativeStep::kOverWeight;
  double tau = 1e-8;
  double clip_multiplicative_direction = 10, clip_relative_step = 0.75, clip_exponent_step = 0;
  double clip_weight = 0;
  ClipWeightMode clip_weight_mode = ClipWeightMode::kAbsolute;
  double weight_decay_multiplicative = 0;
  MultiplicativeDecay weight_decay_multiplicative_mode = MultiplicativeDecay::kScale;
  ApolloE apollo_e = ApolloE::kOff;
  int64_t apollo_e_rank = 4, apollo_e_gap = 200;
  ApolloEScale apollo_e_scale = ApolloEScale::kRms;
  double p_scale = 3, g_bound = 10;
  double momentum = 0.95;
  bool nesterov = true;

  FlatConfig() = default;
  FlatConfig(const OptimizerConfig& config)  // NOLINT: intended conversion
      : rule(rule_name(config.rule)),
        weight_rounding(config.weight_rounding),
        kahan_variant(config.kahan_variant),
        error_feedback(config.error_feedback),
        sr_saturate(config.sr_saturate),
        clip_grad_norm(config.clip_grad_norm) {
    std::visit(
        [&](const auto& keys) {
          each_shared(keys, *this, [](auto& from, auto& to) { to = from; });
        },
        config.rule.keys().value);
  }
  operator OptimizerConfig() const {  // NOLINT: likewise
    OptimizerConfig config{.rule = default_rule(rule),
                           .weight_rounding = weight_rounding,
                           .kahan_variant = kahan_variant,
                           .error_feedback = error_feedback,
                           .sr_saturate = sr_saturate,
                           .clip_grad_norm = clip_grad_norm};
    std::visit(
        [&](auto& keys) { each_shared(keys, *this, [](auto& to, auto& from) { to = from; }); },
        config.rule.keys().value);
    return config;
  }

 private:
  // f(member of keys, member of flat) for every member that `keys` has.
  template <class Keys, class Flat, class F>
  static void each_shared(Keys& keys, Flat& flat, const F& f) {
#define MPT_SHARED(member) \
  if constexpr (requires { keys.member; }) f(keys.member, flat.member)
    MPT_SHARED(lr_additive);
    MPT_SHARED(lr_multiplicative);
    MPT_SHARED(nvfp4_additive_scale);
    MPT_SHARED(beta1);
    MPT_SHARED(beta2);
    MPT_SHARED(eps);
    MPT_SHARED(bias_correction);
    MPT_SHARED(weight_decay_additive);
    MPT_SHARED(weight_decay_norms);
    MPT_SHARED(gradient_ratio);
    MPT_SHARED(relative_step);
    MPT_SHARED(tau);
    MPT_SHARED(clip_multiplicative_direction);
    MPT_SHARED(clip_relative_step);
    MPT_SHARED(clip_exponent_step);
    MPT_SHARED(clip_weight);
    MPT_SHARED(clip_weight_mode);
    MPT_SHARED(weight_decay_multiplicative);
    MPT_SHARED(weight_decay_multiplicative_mode);
    MPT_SHARED(apollo_e);
    MPT_SHARED(apollo_e_rank);
    MPT_SHARED(apollo_e_gap);
    MPT_SHARED(apollo_e_scale);
    MPT_SHARED(p_scale);
    MPT_SHARED(g_bound);
    MPT_SHARED(momentum);
    MPT_SHARED(nesterov);
#undef MPT_SHARED
  }
};

}  // namespace mpt::test
