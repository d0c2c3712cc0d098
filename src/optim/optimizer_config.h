// The `optimizer` section of a config: update rule, rounding of the written weight, rates, clipping and
// decay.
#pragma once

#include <cstdint>

#include "core/json_fields.h"

namespace mpt {

enum class UpdateRule : uint8_t { kAdamW, kMPlusAdam };
template <>
struct EnumNames<UpdateRule> {
  static constexpr std::array<std::string_view, 2> kNames{"adamw", "m_plus_adam"};
};

// How the updated fp32 weight becomes a stored one.
enum class Writeback : uint8_t { kNearest };
template <>
struct EnumNames<Writeback> {
  static constexpr std::array<std::string_view, 1> kNames{"nearest"};
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

struct OptimizerConfig {
  UpdateRule rule = UpdateRule::kAdamW;
  Writeback writeback = Writeback::kNearest;
  double lr_additive = 0;
  double lr_multiplicative = 0;
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

  bool operator==(const OptimizerConfig&) const = default;

  template <class V>
  void fields(V& v) {
    v.required("rule", rule, {.doc = "update rule"});
    v.optional("writeback", writeback, {.doc = "rounding of the updated weight to its stored format"});
    common_fields(v);
    multiplicative_fields(v, only_with("rule", rule, {UpdateRule::kMPlusAdam}));
  }

 private:
  template <class V>
  void common_fields(V& v) {
    v.required("lr_additive", lr_additive,
               {.minimum = 0, .maximum = kMaxReal, .doc = "peak rate of the additive branch (AdamW's rate)"});
    v.optional("beta1", beta1, {.minimum = 0, .maximum = kMaxBelowOne, .doc = "decay of the first moment"});
    v.optional("beta2", beta2, {.minimum = 0, .maximum = kMaxBelowOne, .doc = "decay of the second moments"});
    v.optional(
        "eps", eps,
        {.minimum = kMinPositiveReal, .maximum = kMaxReal, .doc = "added to the root of second moments"});
    v.optional("bias_correction", bias_correction, {.doc = "divide moments by 1 - beta^t"});
    v.optional("clip_grad_norm", clip_grad_norm,
               {.minimum = 0, .maximum = kMaxReal, .doc = "largest global norm of the gradient; 0 = off"});
    v.optional("weight_decay_additive", weight_decay_additive,
               {.minimum = 0, .maximum = kMaxReal, .doc = "decoupled decay inside the additive rate"});
    v.optional("weight_decay_norms", weight_decay_norms, {.doc = "decay the gains of RMSNorm too"});
  }
  template <class V>
  void multiplicative_fields(V& v, const Condition& m_plus_adam) {
    v.required("lr_multiplicative", lr_multiplicative,
               {.minimum = 0,
                .maximum = kMaxReal,
                .only_with = m_plus_adam,
                .doc = "peak rate of the multiplicative branch"});
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
};

}  // namespace mpt
