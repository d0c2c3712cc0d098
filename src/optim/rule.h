// Contract of the update rules in rules/, and code that several of them share.
//
// A rule R provides
//   R::Config      its keys in the section `optimizer`: kName (the name of the rule), defaults,
//                  fields(v), operator==, rates() and describe()
//   R::Steps       the types of its arithmetic, usually one. A Step holds the scalars of one step
//                  of one tensor, rounded to FP32 (docs/numerics.md "Constants of a step")
//   R::step_of(config, tensor)       index of the Step that updates a tensor
//   R::bounds_weights(config)        whether multiples of a tensor's initial RMS bound its weights
//   R::projection(config)            options of a projected second moment, or nothing
//   R::orthogonalization(config)     options of orthogonalized directions, or nothing
//   R::table_size(config)            number of values that Steps read from device memory
//   R::fill_table(config, step, to)  writes those values for one step
//   R::check(config, report)         reports keys that exclude each other
//   R::EagerKahan                    optional: arithmetic of eager BF16 code (kahan.h)
// and a Step provides
//   kStates     name and random stream (for stochastic rounding) of every state
//   kFactors    1: the last input of advance() is an external factor, not a state
//   kBranches   1, or 3: both branches, the additive one, the multiplicative one
//   Step::at(config, step, tensor)       a Step from the configuration and the scalars of a step
//   advance<Ema>(w, g, state, scale)     updates the states in place and returns the weight's Move;
//                                        scale multiplies its additive part except for decay
//   moved(w, move)                       the new weight, before rounding to its stored format
//   change(w, move)                      the same as a difference, for compensation (kahan.h)
//   only(branch, move)                   the part of a move made by one branch; all for kBoth
//   limit_change(w, y)                   clamps y so that w + y stays within the bound on weights
//   settled()                            bias correction is no longer needed:
//                                        advance<Settled<Ema>>() gives the same result
// Bounds of disabled options are infinite, so the inner loop has no branches. Floating-point
// contraction is off: fma() is written where it is meant. rule_list.h lists the rules and checks
// each of them.
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

#include "core/enum_names.h"
#include "core/json/config_struct.h"
#include "core/random.h"
#include "core/type_list.h"
#include "optim/update_statistics.h"

namespace mpt {

// Random streams for rounding states that several rules have. Other states declare their own.
inline constexpr RandomStream kMomentumRoundingStream{2};  // m
inline constexpr RandomStream kVarianceRoundingStream{3};  // v

struct StateInfo {
  std::string_view name;  // in checkpoints: "<name>/<parameter>"
  RandomStream rounding;  // random stream of its stochastic rounding
};

struct StepScalars {
  int64_t t = 0;            // optimizer step, from 1: updates since the present moments began
  int64_t earlier = 0;      // updates of the run before those moments began
  double lr_factor = 1;     // factor on every rate, from the schedule
  float grad_scale = 1.0f;  // from clipping the global norm

  // Number by which random values are drawn.
  [[nodiscard]] int64_t update_of_run() const { return earlier + t; }
};

// Source of directions: moments per weight; for M+Adam's multiplicative branch, a projected second
// moment; or an orthogonalized mean.
enum class Moments : uint8_t { kDense, kProjected, kOrthogonalized };

// Scalars that differ between the tensors of a step.
struct TensorScalars {
  int rank = 2;              // decay applies to matrices only, unless configured
  float weight_unit = 1.0f;  // unit of weight bounds: 1, or the initial RMS
  Moments moments = Moments::kDense;
  const float* table = nullptr;  // in device memory, written by fill_table()
};

// Whether a whole matrix shares a scale (mini) or each channel has its own.
enum class ApolloE : uint8_t { kOff, kMini, kChannel };
template <>
struct EnumNames<ApolloE> {
  static constexpr std::array<std::string_view, 3> kNames{"off", "mini", "channel"};
};

// rms: directions are scaled to an RMS of about 1, like dense ones; unit: not scaled.
enum class ApolloEScale : uint8_t { kRms, kAsProjected };
template <>
struct EnumNames<ApolloEScale> {
  static constexpr std::array<std::string_view, 2> kNames{"rms", "unit"};
};

// A second moment in a random subspace (Apollo-E, apollo_e.h).
struct ProjectionOptions {
  ApolloE sharing = ApolloE::kChannel;  // not kOff
  int64_t rank = 4;                     // r, the rank of the subspace
  int64_t gap = 200;                    // updates between projections
  ApolloEScale scale = ApolloEScale::kRms;
  double beta2 = 0, eps = 0;
  bool bias_correction = true;
};

// Directions with equal singular values (orthogonalization.h).
struct OrthogonalizationOptions {
  double momentum = 0;
  bool nesterov = true;
};

// A peak rate and its key.
struct PeakRate {
  std::string_view key;
  double peak;
};

// Callbacks with which a rule reports keys that exclude each other.
struct KeyReport {
  std::function<void(std::string_view key, const std::string& what)> problem;
  std::function<std::string(std::string_view key)> place;  // " (file:line)" of the key
};

// Base of rules with one arithmetic for all tensors, no projection and no tensor-dependent bound.
struct PlainRule {
  static size_t step_of(const auto& /*config*/, const TensorScalars&) { return 0; }
  static bool bounds_weights(const auto& /*config*/) { return false; }
  static std::optional<ProjectionOptions> projection(const auto& /*config*/) {
    return std::nullopt;
  }
  static std::optional<OrthogonalizationOptions> orthogonalization(const auto& /*config*/) {
    return std::nullopt;
  }
  static int64_t table_size(const auto& /*config*/) { return 0; }
  static void fill_table(const auto& /*config*/, const StepScalars&, std::span<float>) {}
  static void check(const auto& /*config*/, const KeyReport&) {}
};

// block: the additive rate of a weight is proportional to the scale of its block.
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
  [[nodiscard]] double rate_of(const StepScalars& step) const {
    return step.lr_factor * lr_additive;
  }

  void fields(Fields& f);
};

// The bound, or infinity if the key is 0 (off).
inline float bound_or_off(double bound) {
  return bound > 0 ? float(bound) : std::numeric_limits<float>::infinity();
}

// The unrounded weight after one step.
template <class Ema, class Step>
MPT_HD float next_weight(const Step& step, float w, float g, float* state, float scale = 1.0f) {
  return step.moved(w, step.template advance<Ema>(w, g, state, scale));
}

}  // namespace mpt
