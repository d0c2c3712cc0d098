// The `optimizer` section of a config: update rule, rounding of the written weight, rates, clipping and
// decay.
#pragma once

#include <cstdint>

#include "core/json_fields.h"

namespace mpt {

enum class UpdateRule : uint8_t { kAdamW, kMadam, kMPlusAdam };
template <>
struct EnumNames<UpdateRule> {
  static constexpr std::array<std::string_view, 3> kNames{"adamw", "madam", "m_plus_adam"};
};

// How the updated fp32 weight becomes a stored one.
// kahan: to nearest, and a second BF16 number beside each weight carries what the rounding lost.
enum class Writeback : uint8_t { kNearest, kStochastic, kKahan };
template <>
struct EnumNames<Writeback> {
  static constexpr std::array<std::string_view, 3> kNames{"nearest", "stochastic", "kahan"};
};

// fused: the update in FP32, weight and residual rounded once each; per_op: every operation rounds to BF16
// and decay is outside the compensation, as in optimizers written in eager BF16.
enum class KahanVariant : uint8_t { kFused, kPerOp };
template <>
struct EnumNames<KahanVariant> {
  static constexpr std::array<std::string_view, 2> kNames{"fused", "per_op"};
};

// Apollo-E: the second moment of the multiplicative branch in a random subspace of rank r, its scale shared
// by a whole matrix (mini) or a channel of it.
enum class ApolloE : uint8_t { kOff, kMini, kChannel };
template <>
struct EnumNames<ApolloE> {
  static constexpr std::array<std::string_view, 3> kNames{"off", "mini", "channel"};
};

// rms: directions are scaled to an RMS of about 1, as dense ones have; unit: not scaled.
enum class ApolloEScale : uint8_t { kRms, kAsProjected };
template <>
struct EnumNames<ApolloEScale> {
  static constexpr std::array<std::string_view, 2> kNames{"rms", "unit"};
};

// What clip_weight is measured in: the weight itself, or multiples of the tensor's initial RMS.
enum class ClipWeightMode : uint8_t { kAbsolute, kInitRms };
template <>
struct EnumNames<ClipWeightMode> {
  static constexpr std::array<std::string_view, 2> kNames{"absolute", "init_rms"};
};

// scale: w (1 - lr wd). exponent: the exponent of w decays to 0, so that |w| is drawn to 1 (the paper's
// formula).
enum class MultiplicativeDecay : uint8_t { kScale, kExponent };
template <>
struct EnumNames<MultiplicativeDecay> {
  static constexpr std::array<std::string_view, 2> kNames{"scale", "exponent"};
};

// block: the additive rate of an nvfp4 weight is in proportion to the scale of its block.
enum class Nvfp4AdditiveScale : uint8_t { kOff, kBlock };
template <>
struct EnumNames<Nvfp4AdditiveScale> {
  static constexpr std::array<std::string_view, 2> kNames{"off", "block"};
};

struct OptimizerConfig {
  UpdateRule rule = UpdateRule::kAdamW;
  Writeback writeback = Writeback::kNearest;
  KahanVariant kahan_variant = KahanVariant::kFused;
  bool sr_saturate = false;
  double lr_additive = 0;
  double lr_multiplicative = 0;
  Nvfp4AdditiveScale nvfp4_additive_scale = Nvfp4AdditiveScale::kOff;
  double beta1 = 0.9;
  double beta2 = 0.98;
  double eps = 1e-8;
  bool bias_correction = true;
  double clip_grad_norm = 1.0;
  double weight_decay_additive = 0.1;
  bool weight_decay_norms = false;
  double tau = 1e-8;
  double clip_multiplicative_direction = 10;
  double clip_relative_step = 0.75;
  double clip_exponent_step = 0;
  double clip_weight = 0;
  ClipWeightMode clip_weight_mode = ClipWeightMode::kAbsolute;
  double weight_decay_multiplicative = 0;
  MultiplicativeDecay weight_decay_multiplicative_mode = MultiplicativeDecay::kScale;
  ApolloE apollo_e = ApolloE::kOff;
  int64_t apollo_e_rank = 4;
  int64_t apollo_e_gap = 200;
  ApolloEScale apollo_e_scale = ApolloEScale::kRms;
  double p_scale = 3;
  double g_bound = 10;

  bool operator==(const OptimizerConfig&) const = default;

  template <class V>
  void fields(V& v) {
    v.required("rule", rule, {.doc = "update rule"});
    writeback_fields(v);
    const Condition additive = only_with("rule", rule, {UpdateRule::kAdamW, UpdateRule::kMPlusAdam});
    const Condition multiplicative = only_with("rule", rule, {UpdateRule::kMadam, UpdateRule::kMPlusAdam});
    const Condition m_plus_adam = only_with("rule", rule, {UpdateRule::kMPlusAdam});
    rate_fields(v, additive, multiplicative);
    moment_fields(v, additive);
    multiplicative_fields(v, m_plus_adam);
    apollo_e_fields(v, m_plus_adam);
    madam_fields(v, only_with("rule", rule, {UpdateRule::kMadam}));
  }

 private:
  template <class V>
  void writeback_fields(V& v) {
    v.optional("writeback", writeback, {.doc = "rounding of the updated weight to its stored format"});
    v.optional(
        "kahan_variant", kahan_variant,
        {.only_with = only_with("writeback", writeback, {Writeback::kKahan}),
         .doc = "fused: the residual is exact up to one rounding; per_op: every operation rounds to bf16"});
    v.optional("sr_saturate", sr_saturate,
               {.only_with = only_with("writeback", writeback, {Writeback::kStochastic}),
                .doc = "a bf16 weight that would round up to infinity becomes the largest finite one"});
  }
  template <class V>
  void rate_fields(V& v, const Condition& additive, const Condition& multiplicative) {
    v.required("lr_additive", lr_additive,
               {.minimum = 0,
                .maximum = kMaxReal,
                .only_with = additive,
                .doc = "peak rate of the additive branch (AdamW's rate)"});
    v.required("lr_multiplicative", lr_multiplicative,
               {.minimum = 0,
                .maximum = kMaxReal,
                .only_with = multiplicative,
                .doc = "peak rate of the multiplicative branch (Madam's rate)"});
    v.optional(
        "nvfp4_additive_scale", nvfp4_additive_scale,
        {.only_with = additive,
         .doc = "block: the additive rate of an nvfp4 weight, but for its decay, times the scale of its "
                "block over their mean in the tensor"});
  }
  template <class V>
  void moment_fields(V& v, const Condition& additive) {
    v.optional(
        "beta1", beta1,
        {.minimum = 0, .maximum = kMaxBelowOne, .only_with = additive, .doc = "decay of the first moment"});
    v.optional("beta2", beta2, {.minimum = 0, .maximum = kMaxBelowOne, .doc = "decay of the second moments"});
    v.optional("eps", eps,
               {.minimum = kMinPositiveReal,
                .maximum = kMaxReal,
                .only_with = additive,
                .doc = "added to the root of second moments"});
    v.optional("bias_correction", bias_correction, {.doc = "divide moments by 1 - beta^t"});
    v.optional("clip_grad_norm", clip_grad_norm,
               {.minimum = 0, .maximum = kMaxReal, .doc = "largest global norm of the gradient; 0 = off"});
    v.optional("weight_decay_additive", weight_decay_additive,
               {.minimum = 0,
                .maximum = kMaxReal,
                .only_with = additive,
                .doc = "decoupled decay inside the additive rate"});
    v.optional("weight_decay_norms", weight_decay_norms,
               {.only_with = additive, .doc = "decay the gains of RMSNorm too"});
  }
  template <class V>
  void multiplicative_fields(V& v, const Condition& m_plus_adam) {
    v.optional("tau", tau,
               {.minimum = kMinPositiveReal,
                .maximum = kMaxReal,
                .only_with = m_plus_adam,
                .doc = "smallest magnitude that a weight counts as in the relative step"});
    v.optional("clip_multiplicative_direction", clip_multiplicative_direction,
               {.minimum = 0,
                .maximum = kMaxReal,
                .only_with = m_plus_adam,
                .doc = "bound of the normalised direction of the multiplicative branch; 0 = off"});
    v.optional("clip_relative_step", clip_relative_step,
               {.minimum = 0,
                .maximum = 1,
                .only_with = m_plus_adam,
                .doc = "bound of the relative change of a weight in one step; 0 = off"});
    v.optional("clip_exponent_step", clip_exponent_step,
               {.minimum = 0,
                .maximum = 64,
                .only_with = m_plus_adam,
                .doc = "bound of |log2| of the factor of one step; 0 = off"});
    v.optional(
        "clip_weight", clip_weight,
        {.minimum = 0, .maximum = kMaxReal, .only_with = m_plus_adam, .doc = "bound of |weight|; 0 = off"});
    v.optional(
        "clip_weight_mode", clip_weight_mode,
        {.only_with = m_plus_adam, .doc = "unit of clip_weight: absolute, or the initial RMS of the tensor"});
    v.optional("weight_decay_multiplicative", weight_decay_multiplicative,
               {.minimum = 0,
                .maximum = kMaxReal,
                .only_with = m_plus_adam,
                .doc = "decay of the multiplicative branch"});
    v.optional(
        "weight_decay_multiplicative_mode", weight_decay_multiplicative_mode,
        {.only_with = m_plus_adam,
         .doc = "scale shrinks weights; exponent is the paper's formula and draws every |weight| towards 1"});
  }
  template <class V>
  void apollo_e_fields(V& v, const Condition& m_plus_adam) {
    v.optional("apollo_e", apollo_e,
               {.only_with = m_plus_adam,
                .doc = "second moment of the multiplicative branch of linear layers in a random subspace"});
    const Condition projected = only_with("apollo_e", apollo_e, {ApolloE::kMini, ApolloE::kChannel});
    const Condition& on = m_plus_adam.holds ? projected : m_plus_adam;
    v.optional("apollo_e_rank", apollo_e_rank,
               {.minimum = 1, .maximum = 1 << 14, .only_with = on, .doc = "r, dimension of the subspace"});
    v.optional("apollo_e_gap", apollo_e_gap,
               {.minimum = 1, .maximum = 1e9, .only_with = on, .doc = "updates between new projections"});
    v.optional("apollo_e_scale", apollo_e_scale,
               {.only_with = on, .doc = "rms: directions of RMS about 1; unit: as projected"});
  }
  template <class V>
  void madam_fields(V& v, const Condition& madam) {
    v.optional("p_scale", p_scale,
               {.exclusive_minimum = 0,
                .maximum = kMaxReal,
                .only_with = madam,
                .doc = "bound of |weight| in multiples of the tensor's initial RMS"});
    v.optional("g_bound", g_bound,
               {.exclusive_minimum = 0,
                .maximum = kMaxReal,
                .only_with = madam,
                .doc = "bound of the normalised gradient; lr_multiplicative times it is at most 0.25"});
  }
};

}  // namespace mpt
