// The `optimizer` section of a config: the update rule with its keys, weight rounding, clipping.
#pragma once

#include <cstdint>

#include "core/json/config_fields.h"
#include "optim/rule_list.h"

namespace mpt {

// Rounding of the updated FP32 weight to its stored format. kahan: to nearest, with a second BF16
// number per weight that keeps the rounding error.
enum class WeightRounding : uint8_t { kNearest, kStochastic, kKahan };
template <>
struct EnumNames<WeightRounding> {
  static constexpr std::array<std::string_view, 3> kNames{"nearest", "stochastic", "kahan"};
};

// fused: the update in FP32, weight and residual rounded once each; per_op: every operation rounds
// to BF16 and decay is outside the compensation, as in eager BF16 optimizers.
enum class KahanVariant : uint8_t { kFused, kPerOp };
template <>
struct EnumNames<KahanVariant> {
  static constexpr std::array<std::string_view, 2> kNames{"fused", "per_op"};
};

struct OptimizerConfig {
  RuleConfig rule = AdamW::Config{};
  WeightRounding weight_rounding = WeightRounding::kNearest;
  KahanVariant kahan_variant = KahanVariant::kFused;
  bool sr_saturate = false;
  double clip_grad_norm = 1.0;

  bool operator==(const OptimizerConfig&) const = default;

  template <class V>
  void fields(V& v) {
    v.choice("rule", rule, {.doc = "optimizer"});
    v.optional(
        "weight_rounding", weight_rounding,
        {.doc = "rounding of the updated weight to its stored format", .former = "writeback"});
    v.optional(
        "kahan_variant", kahan_variant,
        {.only_with = only_with("weight_rounding", weight_rounding, {WeightRounding::kKahan}),
         .doc = "fused: the residual is exact up to one rounding; per_op: every operation rounds "
                "to bf16"});
    v.optional(
        "sr_saturate", sr_saturate,
        {.only_with = only_with("weight_rounding", weight_rounding, {WeightRounding::kStochastic}),
         .doc = "a bf16 weight that would round up to infinity becomes the largest finite one"});
    v.optional("clip_grad_norm", clip_grad_norm,
               {.minimum = 0, .maximum = kMaxReal, .doc = "maximum global gradient norm; 0 = off"});
  }
};

}  // namespace mpt
