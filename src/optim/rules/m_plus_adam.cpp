#include "optim/rules/m_plus_adam.h"

#include "core/json/config_fields.h"

namespace mpt {

void MPlusAdam::Config::fields(Fields& f) {
  AdamConfig::fields(f);
  f.required(
      "lr_multiplicative", lr_multiplicative,
      {.minimum = 0, .maximum = kMaxReal, .doc = "peak learning rate of the multiplicative step"});
  limit_fields(f);
  f.optional("weight_decay_multiplicative", weight_decay_multiplicative,
             {.minimum = 0, .maximum = kMaxReal, .doc = "decay of the multiplicative branch"});
  f.optional("weight_decay_multiplicative_mode", weight_decay_multiplicative_mode,
             {.doc = "scale shrinks weights; exponent is the paper's formula and draws every "
                     "|weight| towards 1"});
  projection_fields(f);
}

void MPlusAdam::Config::limit_fields(Fields& f) {
  f.optional("relative_step", relative_step,
             {.doc = "over_weight: the direction over |weight|, as in the paper; direct: the "
                     "direction itself, so that a weight moves in proportion to its size"});
  f.optional("tau", tau,
             {.minimum = kMinPositiveReal,
              .maximum = kMaxReal,
              .only_with = only_with("relative_step", relative_step, {RelativeStep::kOverWeight}),
              .doc = "minimum weight magnitude in the relative step"});
  f.optional("clip_multiplicative_direction", clip_multiplicative_direction,
             {.minimum = 0,
              .maximum = kMaxReal,
              .doc = "bound on the normalised direction of the multiplicative branch; 0 = off"});
  f.optional("clip_relative_step", clip_relative_step,
             {.minimum = 0,
              .maximum = 1,
              .doc = "bound on the relative change of a weight in one step; 0 = off"});
  f.optional(
      "clip_exponent_step", clip_exponent_step,
      {.minimum = 0, .maximum = 64, .doc = "bound on |log2| of the factor of one step; 0 = off"});
  f.optional("clip_weight", clip_weight,
             {.minimum = 0, .maximum = kMaxReal, .doc = "bound on |weight|; 0 = off"});
  f.optional("clip_weight_mode", clip_weight_mode,
             {.doc = "unit of clip_weight: absolute, or the initial RMS of the tensor"});
}

void MPlusAdam::Config::projection_fields(Fields& f) {
  f.optional("apollo_e", apollo_e,
             {.doc = "keep the second moment of the multiplicative branch of linear layers in a "
                     "random subspace"});
  const Condition on = only_with("apollo_e", apollo_e, {ApolloE::kMini, ApolloE::kChannel});
  f.optional(
      "apollo_e_rank", apollo_e_rank,
      {.minimum = 1, .maximum = 1 << 14, .only_with = on, .doc = "r, dimension of the subspace"});
  f.optional(
      "apollo_e_gap", apollo_e_gap,
      {.minimum = 1, .maximum = 1e9, .only_with = on, .doc = "updates between new projections"});
  f.optional("apollo_e_scale", apollo_e_scale,
             {.only_with = on, .doc = "rms: directions of RMS about 1; unit: as projected"});
}

}  // namespace mpt
