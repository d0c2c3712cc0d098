// M+Adam (docs/paper.md "The update", docs/numerics.md "The M+Adam step"): an Adam step plus a
// multiplicative step along the gradient with respect to log2|w|. The multiplicative step is
// divided by rho = |w|, so for large and small weights alike it is close to Adam's step without
// momentum (multiplicative_branch_test.cpp).
#pragma once

#include <numbers>

#include "optim/adam_moments.h"

namespace mpt {

// Unit of clip_weight: absolute values, or multiples of the tensor's initial RMS.
enum class ClipWeightMode : uint8_t { kAbsolute, kInitRms };
template <>
struct EnumNames<ClipWeightMode> {
  static constexpr std::array<std::string_view, 2> kNames{"absolute", "init_rms"};
};

// scale: w (1 - lr wd). exponent: the exponent of w decays to 0, which pulls |w| towards 1 (the
// paper's formula).
enum class MultiplicativeDecay : uint8_t { kScale, kExponent };
template <>
struct EnumNames<MultiplicativeDecay> {
  static constexpr std::array<std::string_view, 2> kNames{"scale", "exponent"};
};

// The paper's decay, which pulls the exponent e of a weight (0.5 <= |w| 2^-e < 1) towards 0: r =
// 2^x (1 + u) - 1 with x = -lr wd e, computed as fma(u, 2^x, 2^x - 1). The host tabulates both
// factors for every exponent.
struct ExponentDecay {
  static constexpr int kLowest = -148, kHighest = 128;
  static constexpr int kEntries = kHighest - kLowest + 1;

  const float* factor;            // [kEntries] 2^x
  const float* factor_minus_one;  // [kEntries] 2^x - 1

  // The exponent frexp() gives, also for subnormals; 0 for w = 0, whose entry leaves u unchanged;
  // the highest for Inf and NaN.
  MPT_HD static int exponent_of(float w) {
    const float magnitude = std::fabs(w);
    const bool subnormal = magnitude < 0x1p-126f;
    const float normal = subnormal ? magnitude * 0x1p32f : magnitude;
    const int exponent = static_cast<int>(bits_of(normal) >> 23) - 126 - (subnormal ? 32 : 0);
    return magnitude == 0.0f ? 0 : min_of(exponent, kHighest);
  }
  static ExponentDecay at(double /*amount*/, const TensorScalars& tensor) {
    return {tensor.table, tensor.table + kEntries};
  }
  MPT_HD float operator()(float w, float u) const {
    const int entry = exponent_of(w) - kLowest;
    return std::fma(u, factor[entry], factor_minus_one[entry]);
  }
};

// Relative step: the direction over |w|, as in Algorithm 1, or the direction itself, so that a
// weight moves in proportion to its size.
enum class RelativeStep : uint8_t { kOverWeight, kDirect };
template <>
struct EnumNames<RelativeStep> {
  static constexpr std::array<std::string_view, 2> kNames{"over_weight", "direct"};
};

// r = u - lr wd, so that w (1 + r) = w (1 + u) - lr wd w. r = u if wd = 0.
struct ScaleDecay {
  float amount;

  static ScaleDecay at(double amount, const TensorScalars&) { return {float(amount)}; }
  MPT_HD float operator()(float, float u) const { return u - amount; }
};

inline constexpr RandomStream kExponentVarianceRoundingStream{4};  // v_e

// Normalized direction of the multiplicative branch, from a second moment per weight.
struct DenseDirection {
  static constexpr std::array<StateInfo, 3> kStates{{{"m", kMomentumRoundingStream},
                                                     {"v", kVarianceRoundingStream},
                                                     {"v_e", kExponentVarianceRoundingStream}}};
  static constexpr int kFactors = 0;

  template <class Ema>
  MPT_HD static float of(const AdamMoments& moments, float ge, float& v_e) {
    moments.second<Ema>(ge, v_e);
    return ge / moments.root<Ema>(v_e);
  }
};

// Normalized direction from a projected second moment: one factor per matrix or channel
// (apollo_e.h), passed to the rule in place of v_e and not stored.
struct ProjectedDirection {
  static constexpr std::array<StateInfo, 2> kStates{
      {{"m", kMomentumRoundingStream}, {"v", kVarianceRoundingStream}}};
  static constexpr int kFactors = 1;

  template <class>
  MPT_HD static float of(const AdamMoments&, float ge, float factor) {
    return factor * ge;
  }
};

// Gradient with respect to the exponent of a weight, log2|w|.
MPT_HD float exponent_gradient(float w, float g) {
  const float kLn2 = 0x1.62e43p-1f;  // 3f317218
  return (kLn2 * w) * g;
}

struct MPlusAdam {
  // The lower bound on the relative step is -(clip - kClipMargin), so a weight keeps its sign.
  static constexpr double kClipMargin = 1e-6;

  struct Config : AdamConfig {
    static constexpr std::string_view kName = "m_plus_adam";

    double lr_multiplicative = 0;
    RelativeStep relative_step = RelativeStep::kOverWeight;
    double tau = 1e-8;
    double clip_multiplicative_direction = 10;
    double clip_relative_step = 0.75;
    double clip_exponent_step = 0;
    double clip_weight = 0;
    ClipWeightMode clip_weight_mode = ClipWeightMode::kAbsolute;
    double weight_decay_multiplicative = 0;
    MultiplicativeDecay weight_decay_multiplicative_mode = MultiplicativeDecay::kScale;
    ApolloE apollo_e = ApolloE::kOff;
    int64_t apollo_e_rank = 4;
    int64_t apollo_e_gap = 200;
    ApolloEScale apollo_e_scale = ApolloEScale::kRms;

    bool operator==(const Config&) const = default;
    [[nodiscard]] std::vector<PeakRate> rates() const {
      return {{"lr_additive", lr_additive}, {"lr_multiplicative", lr_multiplicative}};
    }
    [[nodiscard]] std::string describe() const {
      return fmt::format("lr_additive {}, lr_multiplicative {}, beta {} {}, eps {}", lr_additive,
                         lr_multiplicative, beta1, beta2, eps);
    }
    [[nodiscard]] bool decays_exponents() const {
      return weight_decay_multiplicative > 0 &&
             weight_decay_multiplicative_mode == MultiplicativeDecay::kExponent;
    }
    void fields(Fields& f);

   private:
    void limit_fields(Fields& f);
    void projection_fields(Fields& f);
  };

  template <class Decay, class Direction = DenseDirection>
  struct Step {
    static constexpr auto kStates = Direction::kStates;
    static constexpr int kFactors = Direction::kFactors, kBranches = 3;
    struct Move {
      float additive;  // direction, before the additive rate
      float relative;  // change of w in multiples of w
    };

    AdamMoments moments;
    float lr_additive, weight_decay;
    float lr_multiplicative;
    float weight_in_rho, tau;                     // rho = max(weight_in_rho |w|, tau)
    float direction_bound;                        // bound on the multiplicative direction
    float relative_step_low, relative_step_high;  // bounds on the relative change of w
    float exponent_step_low, exponent_step_high;  // 2^-d - 1, 2^d - 1
    float weight_bound;
    Decay decay;

    static Step at(const Config& config, const StepScalars& step, const TensorScalars& tensor);

    template <class Ema>
    MPT_HD Move advance(float w, float g, float* state, float scale = 1.0f) const {
      moments.update<Ema>(g, state[0], state[1]);
      const float dir =
          std::fma(w, weight_decay, scale * moments.direction<Ema>(state[0], state[1]));
      const float direction =
          Direction::template of<Ema>(moments, exponent_gradient(w, g), state[2]);
      const float n = clamp_to(direction, -direction_bound, direction_bound);
      const float rho = max_of(weight_in_rho * std::fabs(w), tau);
      float u = (-lr_multiplicative * n) / rho;
      u = clamp_to(u, relative_step_low, relative_step_high);
      u = clamp_to(u, exponent_step_low, exponent_step_high);
      return {dir, decay(w, u)};
    }
    [[nodiscard]] MPT_HD bool settled() const { return moments.settled(); }
    MPT_HD float moved(float w, Move move) const {
      const float scaled = std::fma(w, move.relative, w);
      return clamp_to(std::fma(-lr_additive, move.additive, scaled), -weight_bound, weight_bound);
    }
    MPT_HD float change(float w, Move move) const {
      return std::fma(w, move.relative, -(lr_additive * move.additive));
    }
    MPT_HD static Move only(Branch branch, Move move) {
      return {branch == Branch::kMultiplicative ? 0.0f : move.additive,
              branch == Branch::kAdditive ? 0.0f : move.relative};
    }
    MPT_HD float limit_change(float w, float y) const {
      return clamp_to(y, -weight_bound - w, weight_bound - w);
    }
  };
  static constexpr int kSteps = 4;  // each is compiled separately
  using Steps =
      TypeList<Step<ScaleDecay, DenseDirection>, Step<ExponentDecay, DenseDirection>,
               Step<ScaleDecay, ProjectedDirection>, Step<ExponentDecay, ProjectedDirection>>;

  static size_t step_of(const Config& config, const TensorScalars& tensor) {
    const size_t exponent = config.decays_exponents() && config.decays(tensor) ? 1 : 0;
    return exponent + (tensor.moments == Moments::kProjected ? 2 : 0);
  }
  static bool bounds_weights(const Config& config) {
    return config.clip_weight > 0 && config.clip_weight_mode == ClipWeightMode::kInitRms;
  }
  static std::optional<ProjectionOptions> projection(const Config& config) {
    if (config.apollo_e == ApolloE::kOff) return std::nullopt;
    return ProjectionOptions{.sharing = config.apollo_e,
                             .rank = config.apollo_e_rank,
                             .gap = config.apollo_e_gap,
                             .scale = config.apollo_e_scale,
                             .beta2 = config.beta2,
                             .eps = config.eps,
                             .bias_correction = config.bias_correction};
  }
  static std::optional<OrthogonalizationOptions> orthogonalization(const Config&) {
    return std::nullopt;
  }
  static int64_t table_size(const Config& config) {
    return config.decays_exponents() ? 2 * ExponentDecay::kEntries : 0;
  }
  // Writes 2^x, then 2^x - 1, at the rate of the step.
  static void fill_table(const Config& config, const StepScalars& step, std::span<float> to) {
    if (to.empty()) return;
    const double decay = multiplicative_decay(config, step);
    for (int entry = 0; entry < ExponentDecay::kEntries; ++entry) {
      const double x = -decay * double(entry + ExponentDecay::kLowest);
      to[size_t(entry)] = float(std::exp2(x));
      to[size_t(entry + ExponentDecay::kEntries)] = float(std::expm1(x * std::numbers::ln2));
    }
  }
  static void check(const Config& config, const KeyReport& report) {
    const double clip = config.clip_relative_step;
    if (clip != 0 && clip <= kClipMargin)
      report.problem(
          "clip_relative_step",
          fmt::format("must be 0 (off) or greater than {}, found {}", kClipMargin, clip));
  }

  static double multiplicative_rate(const Config& config, const StepScalars& step) {
    return step.lr_factor * config.lr_multiplicative;
  }
  // lr wd of the multiplicative branch: the step's FP32 rate times the configured decay.
  static double multiplicative_decay(const Config& config, const StepScalars& step) {
    return double(float(multiplicative_rate(config, step))) * config.weight_decay_multiplicative;
  }
};

template <class Decay, class Direction>
MPlusAdam::Step<Decay, Direction> MPlusAdam::Step<Decay, Direction>::at(
    const Config& config, const StepScalars& step, const TensorScalars& tensor) {
  constexpr float kUnbounded = std::numeric_limits<float>::infinity();
  const double d = config.clip_exponent_step, r = config.clip_relative_step;
  const double decay = config.decays(tensor) && !config.decays_exponents()
                           ? multiplicative_decay(config, step)
                           : 0.0;
  const bool over_weight = config.relative_step == RelativeStep::kOverWeight;
  return {.moments = AdamMoments::at(config, step.t),
          .lr_additive = float(config.rate_of(step)),
          .weight_decay = float(config.decay_of(tensor)),
          .lr_multiplicative = float(multiplicative_rate(config, step)),
          .weight_in_rho = over_weight ? 1.0f : 0.0f,
          .tau = over_weight ? float(config.tau) : 1.0f,
          .direction_bound = bound_or_off(config.clip_multiplicative_direction),
          .relative_step_low = r > 0 ? -(float(r) - float(kClipMargin)) : -kUnbounded,
          .relative_step_high = bound_or_off(r),
          .exponent_step_low = d > 0 ? float(std::exp2(-d) - 1.0) : -kUnbounded,
          .exponent_step_high = d > 0 ? float(std::exp2(d) - 1.0) : kUnbounded,
          .weight_bound =
              config.clip_weight > 0 ? float(config.clip_weight) * tensor.weight_unit : kUnbounded,
          .decay = Decay::at(decay, tensor)};
}

namespace rule_files {
using m_plus_adam = MPlusAdam;
}

}  // namespace mpt
