#include "optim/optimizer_config.h"

#include "core/json/config_fields.h"
#include "optim/adam_moments.h"

namespace mpt {

void OptimizerConfig::fields(Fields& f) {
  f.choice("rule", rule.choice(), {.doc = "optimizer"});
  f.optional("weight_rounding", weight_rounding,
             {.doc = "rounding of the updated weight to its stored format", .former = "writeback"});
  f.optional(
      "kahan_variant", kahan_variant,
      {.only_with = only_with("weight_rounding", weight_rounding, {WeightRounding::kKahan}),
       .doc = "fused: the residual is exact up to one rounding; per_op: every operation rounds "
              "to bf16"});
  f.optional(
      "error_feedback", error_feedback,
      {.only_with = only_with("weight_rounding", weight_rounding,
                              {WeightRounding::kNearest, WeightRounding::kStochastic}),
       .doc = "momentum: what rounding a weight loses is added to its first moment, from which "
              "later steps return it (ECO). With nearest, errors add up in it until a step exceeds "
              "half a unit; units of 4 bits are so coarse that runs are unstable from beta1 = 0.75 "
              "on: take stochastic, or beta1 = 0.7"});
  f.optional(
      "sr_saturate", sr_saturate,
      {.only_with = only_with("weight_rounding", weight_rounding, {WeightRounding::kStochastic}),
       .doc = "a bf16 weight that would round up to infinity becomes the largest finite one"});
  f.optional("clip_grad_norm", clip_grad_norm,
             {.minimum = 0, .maximum = kMaxReal, .doc = "maximum global gradient norm; 0 = off"});
}

// --- keys that several rules have ----------------------------------------------------------------

void AdditiveConfig::fields(Fields& f) {
  f.required("lr_additive", lr_additive,
             {.minimum = 0, .maximum = kMaxReal, .doc = "peak learning rate of the additive step"});
  f.optional("weight_decay_additive", weight_decay_additive,
             {.minimum = 0,
              .maximum = kMaxReal,
              .doc = "decoupled weight decay, times the additive learning rate"});
  f.optional("weight_decay_norms", weight_decay_norms, {.doc = "also decay the gains of RMSNorm"});
  f.optional("nvfp4_additive_scale", nvfp4_additive_scale,
             {.doc = "block: multiply the additive step of an nvfp4 weight, but not its decay, "
                     "by its block scale over the mean block scale of the tensor"});
}

void AdamConfig::fields(Fields& f) {
  AdditiveConfig::fields(f);
  f.optional("beta1", beta1,
             {.minimum = 0, .maximum = kMaxBelowOne, .doc = "decay of the first moment"});
  f.optional("beta2", beta2,
             {.minimum = 0, .maximum = kMaxBelowOne, .doc = "decay of the second moments [0.98]"});
  f.optional("eps", eps,
             {.minimum = kMinPositiveReal,
              .maximum = kMaxReal,
              .doc = "added to the square root of the second moments"});
  f.optional("bias_correction", bias_correction, {.doc = "divide moments by 1 - beta^t"});
}

}  // namespace mpt
