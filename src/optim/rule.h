// What an update rule is: the contract of the headers in rules/, and what several of them share.
//
// A rule R says
//   R::Config      its keys of the section `optimizer`: kName, which is the rule's name, defaults, fields(v),
//                  operator==, rates() and describe()
//   R::Steps       the types of its arithmetic, most often one. Such a Step holds the scalars of one step of
//                  one tensor, already rounded to FP32 (docs/numerics.md "Constants of a step")
//   R::step_of(config, tensor)       which of them makes the update of a tensor
//   R::bounds_weights(config)        weights are bounded by multiples of their tensor's initial RMS
//   R::projection(config)            how a second moment is projected, or nothing
//   R::table_size(config)            values that Steps read from device memory; 0: none
//   R::fill_table(config, step, to)  those of one step
//   R::check(config, report)         what its keys exclude
//   R::EagerKahan                    optional: its arithmetic as eager BF16 code has it (kahan.h)
// and a Step
//   kStates     name of every state, and the random numbers that its stochastic rounding draws
//   kFactors    1: the last input of advance() is a factor from outside and not a state
//   kBranches   1, or 3: both branches, the additive one, the multiplicative one
//   Step::at(config, step, tensor)       from an optimizer's configuration and the scalars of a step
//   advance<Ema>(w, g, state, scale)     updates the states in place and returns the Move that the weight
//                                        shall make; its additive part, but for decay, is multiplied by scale
//   moved(w, move)                       the weight after it, before it is rounded to its storage
//   change(w, move)                      the same as a difference, for compensated storage (kahan.h)
//   only(branch, move)                   the part of a move that one of the branches makes; all for kBoth
//   limit_change(w, y)                   y such that w + y keeps the rule's bound of weights
//   settled()                            its moments need no correction any more: advance<Settled<Ema>>()
//                                        does the same
// Where an option is off its bounds are infinite, so that no branch stands in the inner loop. Nothing is
// contracted: fma is written where it is meant. rule_list.h holds the list of rules and checks each of them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/json/config_fields.h"
#include "core/random.h"
#include "core/type_list.h"
#include "optim/projection_options.h"
#include "optim/update_statistics.h"

namespace mpt {

// Rounding of states, by what several rules keep; a rule with another state declares its own.
inline constexpr RandomStream kMomentumRoundingStream{2};  // m
inline constexpr RandomStream kVarianceRoundingStream{3};  // v

struct StateInfo {
  std::string_view name;  // in checkpoints: "<name>/<parameter>"
  RandomStream rounding;  // what its stochastic rounding draws from
};

struct StepScalars {
  int64_t t = 0;            // optimizer step, from 1
  double lr_factor = 1;     // of every rate, from the schedule
  float grad_scale = 1.0f;  // from clipping the global norm
};

// Where the direction of a branch comes from: moments of every weight, or a projection of them.
enum class Moments : uint8_t { kDense, kProjected };

// What differs between tensors of one step.
struct TensorScalars {
  int rank = 2;              // decay applies to matrices only, unless configured
  float weight_unit = 1.0f;  // what bounds of weights are multiples of: 1, or the initial RMS
  Moments moments = Moments::kDense;
  const float* table = nullptr;  // in device memory, as fill_table() gave it
};

// A peak rate, under its key.
struct PeakRate {
  std::string_view key;
  double peak;
};

// Where a rule says what its keys exclude.
struct KeyReport {
  std::function<void(std::string_view key, const std::string& what)> problem;
  std::function<std::string(std::string_view key)> place;  // " (file:line)", where the key was written
};

// Of rules with one arithmetic for all tensors, moments of their own and no bound that depends on the tensor.
struct PlainRule {
  static size_t step_of(const auto& /*config*/, const TensorScalars&) { return 0; }
  static bool bounds_weights(const auto& /*config*/) { return false; }
  static std::optional<ProjectionOptions> projection(const auto& /*config*/) { return std::nullopt; }
  static int64_t table_size(const auto& /*config*/) { return 0; }
  static void fill_table(const auto& /*config*/, const StepScalars&, std::span<float>) {}
  static void check(const auto& /*config*/, const KeyReport&) {}
};

// block: the additive rate of a weight is in proportion to the scale of its block.
enum class Nvfp4AdditiveScale : uint8_t { kOff, kBlock };
template <>
struct EnumNames<Nvfp4AdditiveScale> {
  static constexpr std::array<std::string_view, 2> kNames{"off", "block"};
};

// Keys of every rule with an additive step.
struct AdditiveConfig {
  double lr_additive = 0;
  double weight_decay_additive = 0.1;
  bool weight_decay_norms = false;
  Nvfp4AdditiveScale nvfp4_additive_scale = Nvfp4AdditiveScale::kOff;

  bool operator==(const AdditiveConfig&) const = default;

  [[nodiscard]] bool decays(const TensorScalars& tensor) const {
    return tensor.rank > 1 || weight_decay_norms;
  }
  [[nodiscard]] double decay_of(const TensorScalars& tensor) const {
    return decays(tensor) ? weight_decay_additive : 0.0;
  }
  [[nodiscard]] double rate_of(const StepScalars& step) const { return step.lr_factor * lr_additive; }

  template <class V>
  void fields(V& v) {
    v.required("lr_additive", lr_additive,
               {.minimum = 0, .maximum = kMaxReal, .doc = "peak rate of the additive step"});
    v.optional("weight_decay_additive", weight_decay_additive,
               {.minimum = 0, .maximum = kMaxReal, .doc = "decoupled decay inside the additive rate"});
    v.optional("weight_decay_norms", weight_decay_norms, {.doc = "decay the gains of RMSNorm too"});
    v.optional(
        "nvfp4_additive_scale", nvfp4_additive_scale,
        {.doc = "block: the additive rate of an nvfp4 weight, but for its decay, times the scale of its "
                "block over their mean in the tensor"});
  }
};

// A bound that is off where the key is 0.
inline float bound_or_off(double bound) {
  return bound > 0 ? float(bound) : std::numeric_limits<float>::infinity();
}

// The unrounded weight after one step.
template <class Ema, class Step>
MPT_HD float next_weight(const Step& step, float w, float g, float* state, float scale = 1.0f) {
  return step.moved(w, step.template advance<Ema>(w, g, state, scale));
}

}  // namespace mpt
