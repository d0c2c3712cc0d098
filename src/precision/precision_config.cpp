#include "precision/precision_config.h"

#include "core/json/config_fields.h"

namespace mpt {

void PrecisionConfig::fields(Fields& f) {
  f.optional("weights", weights,
             {.doc = "format in which the weights of the linear layers are stored and trained; "
                     "embedding, norms and head are bf16, or fp32 if this is fp32"});
  f.optional("compute", compute,
             {.doc = "format of GEMM operands and activations; fp8: operands of the linear "
                     "layers, everything else bf16; tf32: fp32, of which GEMMs read 10 mantissa "
                     "bits, on GPUs only"});
  f.optional("optimizer_state", optimizer_state,
             {.doc = "format in which moments are stored; the update itself is computed in fp32"});
  f.optional(
      "gradient", gradient,
      {.doc = "format of stored gradients; micro-batches accumulate in fp32 and are rounded once"});
  state_fields(f);
  storage_fields(f);
  compute_fields(f);
  scaling_fields(f);
}

void PrecisionConfig::state_fields(Fields& f) {
  const Condition bf16_state = only_with("optimizer_state", optimizer_state, {Format::kBF16});
  f.optional("state_rounding", state_rounding,
             {.only_with = bf16_state, .doc = "rounding of moments when they are stored"});
  f.optional("state_update", state_update,
             {.only_with = bf16_state,
              .doc = "per_op: every operation on a moment rounds, as eager bf16 code does; the "
                     "rounded moments enter the update"});
}

void PrecisionConfig::storage_fields(Fields& f) {
  const Condition fp8 = only_with("weights", weights, {WeightFormat::kBlockFp8});
  f.optional("fp8_block_size", fp8_block_size,
             {.minimum = 16,
              .maximum = 256,
              .only_with = fp8,
              .doc = "consecutive elements of a row that share a scale: 16, 32, 64, 128 or 256"});
  f.optional("fp8_scale_mode", fp8_scale_mode,
             {.only_with = fp8,
              .doc = "pow2: scales are powers of two; fp16: the quotient amax / 448 itself, "
                     "whose changes also change weights"});
  f.optional("nvfp4_scale_mode", nvfp4_scale_mode,
             {.only_with = only_with("weights", weights, {WeightFormat::kNvfp4}),
              .doc = "sticky: scales change by powers of two, and only when they must; live: all "
                     "scales are recomputed at every step, which also changes weights"});
}

void PrecisionConfig::compute_fields(Fields& f) {
  const Condition fp8 = only_with("compute", compute, {ComputeFormat::kFp8});
  f.optional(
      "fp8_recipe", fp8_recipe,
      {.only_with = fp8,
       .doc = "delayed: scales from the history of amaxes; current: from the tensor itself"});
  f.optional("fp8_weight_recast", fp8_weight_recast,
             {.only_with = fp8, .doc = "how often weights are cast to fp8"});
  f.optional(
      "fp8_cast_source", fp8_cast_source,
      {.only_with = fp8,
       .doc = "bf16: outputs of RMSNorm and SwiGLU are rounded to bf16 before they are cast"});
  f.optional(
      "fp8_weight_source", fp8_weight_source,
      {.only_with = fp8, .doc = "bf16: decoded weights are rounded to bf16 before they are cast"});
  f.optional("fp8_lm_head", fp8_lm_head,
             {.only_with = fp8, .doc = "run the GEMMs of the head in fp8, too"});
  f.optional("fp8_fast_accum_fprop", fp8_fast_accum_fprop,
             {.only_with = fp8,
              .doc = "forward GEMMs may sum in the tensor cores' own accumulators, which keep "
                     "fewer bits than fp32; a CPU always sums in fp32"});
}

void PrecisionConfig::scaling_fields(Fields& f) {
  const Condition fp8 = only_with("compute", compute, {ComputeFormat::kFp8});
  const Condition delayed = only_with("fp8_recipe", fp8_recipe, {Fp8Recipe::kDelayed});
  f.optional("fp8_history", fp8_history,
             {.minimum = 1,
              .maximum = 1 << 16,
              .only_with = fp8,
              .and_with = delayed,
              .doc = "length of the amax history"});
  f.optional(
      "fp8_amax_algo", fp8_amax_algo,
      {.only_with = fp8, .and_with = delayed, .doc = "which amax of the history sets the scale"});
  f.optional("fp8_margin", fp8_margin,
             {.minimum = -64,
              .maximum = 64,
              .only_with = fp8,
              .and_with = delayed,
              .doc = "powers of two of headroom above the amax"});
  f.optional(
      "fp8_amax_update", fp8_amax_update,
      {.only_with = fp8, .and_with = delayed, .doc = "how often histories roll and scales change"});
  f.optional("fp8_eval_amax", fp8_eval_amax,
             {.only_with = fp8,
              .and_with = delayed,
              .doc = "suppress: evaluation leaves the history unchanged, so training does not "
                     "depend on it; fold: amaxes of evaluation enter the history"});
}

}  // namespace mpt
