// The `precision` section of a config: the format of each kind of value.
#pragma once

#include "core/json/config_struct.h"
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

// How often to run something that could run for every micro-batch.
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

  void fields(Fields& f);

 private:
  void state_fields(Fields& f);
  void storage_fields(Fields& f);
  void compute_fields(Fields& f);
  void scaling_fields(Fields& f);
};

// Encoding of the linear layers' weights.
inline WeightEncoding linear_encoding(const PrecisionConfig& config) {
  return {.format = config.weights,
          .fp8_block_size = config.fp8_block_size,
          .fp8_scale_mode = config.fp8_scale_mode,
          .nvfp4_scale_mode = config.nvfp4_scale_mode};
}

}  // namespace mpt
