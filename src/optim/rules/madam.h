// Madam (Bernstein et al., "Learning compositional functions via multiplicative weight updates"),
// docs/numerics.md "Madam": w' = w e^x, x = -lr sign(w) g / sqrt(v^). Signs never change, and 0
// stays 0.
#pragma once

#include "core/check.h"
#include "optim/adam_moments.h"

namespace mpt {

struct Madam : PlainRule {
  // Bound on lr g_bound: the range of the series in exp_minus_one().
  static constexpr double kMostExponent = 0.25;

  struct Config {
    static constexpr std::string_view kName = "madam";

    double lr_multiplicative = 0;
    double beta2 = 0.98;
    bool bias_correction = true;
    double p_scale = 3;
    double g_bound = 10;

    bool operator==(const Config&) const = default;
    [[nodiscard]] std::vector<PeakRate> rates() const {
      return {{"lr_multiplicative", lr_multiplicative}};
    }
    [[nodiscard]] std::string describe() const {
      return fmt::format("lr {}, beta2 {}, p_scale {}, g_bound {}", lr_multiplicative, beta2,
                         p_scale, g_bound);
    }
    void fields(Fields& f);
  };

  struct Step {
    static constexpr std::array<StateInfo, 1> kStates{{{"v", kVarianceRoundingStream}}};
    static constexpr int kFactors = 0, kBranches = 1;
    using Move = float;

    float beta2, one_minus_beta2;
    SharedDivisor correction2;
    float lr;
    float direction_bound;  // bound on g / sqrt(v^)
    float weight_bound;

    static Step at(const Config& config, const StepScalars& step, const TensorScalars& tensor) {
      const double rate = step.lr_factor * config.lr_multiplicative;
      mpt::check(rate * config.g_bound <= kMostExponent,
                 "madam with a rate of {} and a bound of {}: their product must be at most {}",
                 rate, config.g_bound, kMostExponent);
      const float beta2 = float(config.beta2);
      return {.beta2 = beta2,
              .one_minus_beta2 = 1.0f - beta2,
              .correction2 = mpt::bias_correction(config.bias_correction, beta2, step.t),
              .lr = float(rate),
              .direction_bound = float(config.g_bound),
              .weight_bound = float(config.p_scale) * tensor.weight_unit};
    }

    // e^x - 1 for |x| <= 1/4.
    MPT_HD static float exp_minus_one(float x) {
      float sum = 1.0f / 5040.0f;
      sum = std::fma(sum, x, 1.0f / 720.0f);
      sum = std::fma(sum, x, 1.0f / 120.0f);
      sum = std::fma(sum, x, 1.0f / 24.0f);
      sum = std::fma(sum, x, 1.0f / 6.0f);
      sum = std::fma(sum, x, 0.5f);
      sum = std::fma(sum, x, 1.0f);
      return sum * x;
    }
    template <class Ema>
    MPT_HD float advance(float w, float g, float* state, float /*scale*/ = 1.0f) const {
      state[0] = Ema::mean_square(beta2, one_minus_beta2, g, state[0]);
      const float root = std::sqrt(Ema::corrected(state[0], correction2));
      const float bounded = clamp_to(g / root, -direction_bound, direction_bound);
      const float n = root > 0.0f ? bounded : 0.0f;
      const float x = -(lr * n);
      return exp_minus_one(w < 0.0f ? -x : x);
    }
    [[nodiscard]] MPT_HD bool settled() const { return correction2.value == 1.0f; }
    MPT_HD float moved(float w, float factor) const {
      return clamp_to(std::fma(w, factor, w), -weight_bound, weight_bound);
    }
    MPT_HD float change(float w, float factor) const { return w * factor; }
    MPT_HD static float only(Branch, float factor) { return factor; }
    MPT_HD float limit_change(float w, float y) const {
      return clamp_to(y, -weight_bound - w, weight_bound - w);
    }
  };
  using Steps = TypeList<Step>;

  static bool bounds_weights(const Config&) { return true; }
  static void check(const Config& config, const KeyReport& report) {
    const double exponent = config.lr_multiplicative * config.g_bound;
    if (exponent > kMostExponent)
      report.problem("lr_multiplicative",
                     fmt::format("{} times optimizer.g_bound = {}{} is {}; a step of madam may "
                                 "change a weight by a factor of at most e^{}",
                                 config.lr_multiplicative, config.g_bound, report.place("g_bound"),
                                 exponent, kMostExponent));
  }
};

namespace rule_files {
using madam = Madam;
}

}  // namespace mpt
