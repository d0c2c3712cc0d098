// The `optimizer` section of a config: the update rule and its keys, weight rounding, clipping.
#pragma once

#include <cstdint>
#include <optional>

#include "core/json/config_struct.h"
#include "core/tensor.h"
#include "optim/rule_config.h"

namespace mpt {

// Rounding of the updated FP32 weight to its stored format. All but stochastic round to nearest;
// they differ in what they keep of the error for each weight: kahan a second BF16 number, remainder
// the 16 bits that complete FP32, ulp_residual 8 bits, master an FP32 copy of the weight.
enum class WeightRounding : uint8_t {
  kNearest,
  kStochastic,
  kKahan,
  kRemainder,
  kUlpResidual,
  kMaster
};
template <>
struct EnumNames<WeightRounding> {
  static constexpr std::array<std::string_view, 6> kNames{"nearest",   "stochastic",   "kahan",
                                                          "remainder", "ulp_residual", "master"};
};

// A number stored with every weight, separate from the rule's states.
struct ResidualInfo {
  std::string_view name;  // in checkpoints: "<name>/<parameter>"
  DType dtype;
};
// Returns nullopt for roundings that keep no residual.
constexpr std::optional<ResidualInfo> residual_of(WeightRounding rounding) {
  switch (rounding) {
    case WeightRounding::kNearest:
    case WeightRounding::kStochastic:
      return std::nullopt;
    case WeightRounding::kKahan:
      return ResidualInfo{"kahan", DType::kBF16};
    case WeightRounding::kRemainder:
      return ResidualInfo{"remainder", DType::kI16};
    case WeightRounding::kUlpResidual:
      return ResidualInfo{"ulp_residual", DType::kI8};
    case WeightRounding::kMaster:
      return ResidualInfo{"master", DType::kF32};
  }
  return std::nullopt;
}
// Whether the residual completes a BF16 number.
constexpr bool completes_bf16(WeightRounding rounding) {
  return residual_of(rounding) && rounding != WeightRounding::kMaster;
}

// Destination of rounding errors for which no residual is kept. momentum: the first moment, from
// which later steps return them (ECO).
enum class ErrorFeedbackMode : uint8_t { kOff, kMomentum };
template <>
struct EnumNames<ErrorFeedbackMode> {
  static constexpr std::array<std::string_view, 2> kNames{"off", "momentum"};
};

// fused: the update in FP32, weight and residual rounded once each; per_op: every operation rounds
// to BF16 and decay is outside the compensation, as in eager BF16 optimizers.
enum class KahanVariant : uint8_t { kFused, kPerOp };
template <>
struct EnumNames<KahanVariant> {
  static constexpr std::array<std::string_view, 2> kNames{"fused", "per_op"};
};

struct OptimizerConfig {
  RuleConfig rule{};
  WeightRounding weight_rounding = WeightRounding::kNearest;
  KahanVariant kahan_variant = KahanVariant::kFused;
  ErrorFeedbackMode error_feedback = ErrorFeedbackMode::kOff;
  bool sr_saturate = false;
  double clip_grad_norm = 1.0;

  bool operator==(const OptimizerConfig&) const = default;

  void fields(Fields& f);
};

}  // namespace mpt
