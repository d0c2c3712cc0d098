// The `precision` section of a config: which format holds what.
#pragma once

#include "core/json/config_fields.h"
#include "precision/format.h"
#include "precision/weight_formats.h"

namespace mpt {

// delayed: scales from the amax history of earlier steps, as in Transformer Engine; current: from
// the tensor itself.
enum class Fp8Recipe : uint8_t { kDelayed, kCurrent };
template <>
struct EnumNames<Fp8Recipe> {
  static constexpr std::array<std::string_view, 2> kNames{"delayed", "current"};
};

enum class AmaxAlgorithm : uint8_t { kMax, kMostRecent };
template <>
struct EnumNames<AmaxAlgorithm> {
  static constexpr std::array<std::string_view, 2> kNames{"max", "most_recent"};
};

// How often something runs that could run for every micro-batch.
enum class Cadence : uint8_t { kMicrobatch, kStep };
template <>
struct EnumNames<Cadence> {
  static constexpr std::array<std::string_view, 2> kNames{"microbatch", "step"};
};

// Whether evaluation ignores the amaxes it sees or folds them into the next scale update.
enum class EvalAmax : uint8_t { kSuppress, kFold };
template <>
struct EnumNames<EvalAmax> {
  static constexpr std::array<std::string_view, 2> kNames{"suppress", "fold"};
};

// once: moments are updated in FP32 and rounded on store; per_op: every operation rounds, as in
// eager BF16 code.
enum class StateUpdate : uint8_t { kOnce, kPerOp };
template <>
struct EnumNames<StateUpdate> {
  static constexpr std::array<std::string_view, 2> kNames{"once", "per_op"};
};

struct PrecisionConfig {
  WeightFormat weights = WeightFormat::kBF16;
  ComputeFormat compute = ComputeFormat::kBF16;
  Format optimizer_state = Format::kBF16;
  Format gradient = Format::kBF16;
  Rounding state_rounding = Rounding::kNearest;
  StateUpdate state_update = StateUpdate::kOnce;
  int64_t fp8_block_size = 128;
  Fp8ScaleMode fp8_scale_mode = Fp8ScaleMode::kPow2;
  Nvfp4ScaleMode nvfp4_scale_mode = Nvfp4ScaleMode::kSticky;
  Fp8Recipe fp8_recipe = Fp8Recipe::kDelayed;
  int64_t fp8_history = 1024;
  AmaxAlgorithm fp8_amax_algo = AmaxAlgorithm::kMax;
  int64_t fp8_margin = 0;
  Cadence fp8_amax_update = Cadence::kMicrobatch;
  Cadence fp8_weight_recast = Cadence::kStep;
  EvalAmax fp8_eval_amax = EvalAmax::kSuppress;
  Format fp8_cast_source = Format::kBF16;
  Format fp8_weight_source = Format::kF32;
  bool fp8_lm_head = false;
  bool fp8_fast_accum_fprop = true;

  bool operator==(const PrecisionConfig&) const = default;

  template <class V>
  void fields(V& v) {
    v.optional("weights", weights,
               {.doc = "format in which the weights of the linear layers are stored and trained; "
                       "embedding, norms and head are bf16, or fp32 if this is fp32"});
    v.optional("compute", compute,
               {.doc = "format of GEMM operands and activations; fp8: operands of the linear "
                       "layers, everything else bf16; tf32: fp32, of which GEMMs read 10 mantissa "
                       "bits, on GPUs only"});
    v.optional(
        "optimizer_state", optimizer_state,
        {.doc = "format in which moments are stored; the update itself is computed in fp32"});
    v.optional(
        "gradient", gradient,
        {.doc =
             "format of stored gradients; micro-batches accumulate in fp32 and are rounded once"});
    state_fields(v, only_with("optimizer_state", optimizer_state, {Format::kBF16}));
    storage_fields(v);
    const Condition fp8 = only_with("compute", compute, {ComputeFormat::kFp8});
    compute_fields(v, fp8);
    const Condition delayed = only_with("fp8_recipe", fp8_recipe, {Fp8Recipe::kDelayed});
    scaling_fields(v, fp8.holds ? delayed : fp8);
  }

 private:
  template <class V>
  void state_fields(V& v, const Condition& bf16_state) {
    v.optional("state_rounding", state_rounding,
               {.only_with = bf16_state, .doc = "rounding of moments when they are stored"});
    v.optional("state_update", state_update,
               {.only_with = bf16_state,
                .doc = "per_op: every operation on a moment rounds, as eager bf16 code does; the "
                       "rounded moments enter the update"});
  }
  template <class V>
  void storage_fields(V& v) {
    const Condition fp8 = only_with("weights", weights, {WeightFormat::kBlockFp8});
    v.optional("fp8_block_size", fp8_block_size,
               {.minimum = 16,
                .maximum = 256,
                .only_with = fp8,
                .doc = "consecutive elements of a row that share a scale: 16, 32, 64, 128 or 256"});
    v.optional("fp8_scale_mode", fp8_scale_mode,
               {.only_with = fp8,
                .doc = "pow2: scales are powers of two; fp16: the quotient amax / 448 itself, "
                       "whose changes also change weights"});
    v.optional("nvfp4_scale_mode", nvfp4_scale_mode,
               {.only_with = only_with("weights", weights, {WeightFormat::kNvfp4}),
                .doc = "sticky: scales change by powers of two, and only when they must; live: all "
                       "scales are recomputed at every step, which also changes weights"});
  }
  template <class V>
  void compute_fields(V& v, const Condition& fp8) {
    v.optional(
        "fp8_recipe", fp8_recipe,
        {.only_with = fp8,
         .doc = "delayed: scales from the history of amaxes; current: from the tensor itself"});
    v.optional("fp8_weight_recast", fp8_weight_recast,
               {.only_with = fp8, .doc = "how often weights are cast to fp8"});
    v.optional(
        "fp8_cast_source", fp8_cast_source,
        {.only_with = fp8,
         .doc = "bf16: outputs of RMSNorm and SwiGLU are rounded to bf16 before they are cast"});
    v.optional("fp8_weight_source", fp8_weight_source,
               {.only_with = fp8,
                .doc = "bf16: decoded weights are rounded to bf16 before they are cast"});
    v.optional("fp8_lm_head", fp8_lm_head,
               {.only_with = fp8, .doc = "run the GEMMs of the head in fp8, too"});
    v.optional("fp8_fast_accum_fprop", fp8_fast_accum_fprop,
               {.only_with = fp8,
                .doc = "forward GEMMs may sum in the tensor cores' own accumulators, which keep "
                       "fewer bits than fp32; a CPU always sums in fp32"});
  }
  template <class V>
  void scaling_fields(V& v, const Condition& delayed) {
    v.optional("fp8_history", fp8_history,
               {.minimum = 1,
                .maximum = 1 << 16,
                .only_with = delayed,
                .doc = "length of the amax history"});
    v.optional("fp8_amax_algo", fp8_amax_algo,
               {.only_with = delayed, .doc = "which amax of the history sets the scale"});
    v.optional("fp8_margin", fp8_margin,
               {.minimum = -64,
                .maximum = 64,
                .only_with = delayed,
                .doc = "powers of two of headroom above the amax"});
    v.optional("fp8_amax_update", fp8_amax_update,
               {.only_with = delayed, .doc = "how often histories roll and scales change"});
    v.optional("fp8_eval_amax", fp8_eval_amax,
               {.only_with = delayed,
                .doc = "suppress: evaluation leaves the history unchanged, so training does not "
                       "depend on it; fold: amaxes of evaluation enter the history"});
  }
};

// Of the linear layers.
inline WeightEncoding linear_encoding(const PrecisionConfig& config) {
  return {.format = config.weights,
          .fp8_block_size = config.fp8_block_size,
          .fp8_scale_mode = config.fp8_scale_mode,
          .nvfp4_scale_mode = config.nvfp4_scale_mode};
}

}  // namespace mpt
