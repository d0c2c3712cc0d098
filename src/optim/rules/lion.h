// Lion (Chen et al., "Symbolic discovery of optimization algorithms", Algorithm 2),
// docs/numerics.md "Lion": w' = w - lr (sign(b1 m + (1 - b1) g) + wd w), then m <- b2 m + (1 - b2)
// g.
#pragma once

#include "optim/adam_moments.h"

namespace mpt {

struct Lion : PlainRule {
  struct Config : AdditiveConfig {
    static constexpr std::string_view kName = "lion";

    double beta1 = 0.9;
    double beta2 = 0.99;

    bool operator==(const Config&) const = default;
    [[nodiscard]] std::vector<PeakRate> rates() const { return {{"lr_additive", lr_additive}}; }
    [[nodiscard]] std::string describe() const {
      return fmt::format("lr {}, beta {} {}", lr_additive, beta1, beta2);
    }
    void fields(Fields& f);
  };

  struct Step {
    static constexpr std::array<StateInfo, 1> kStates{{{"m", kMomentumRoundingStream}}};
    static constexpr int kFactors = 0, kBranches = 1;
    using Move = float;

    float beta1, one_minus_beta1, beta2, one_minus_beta2;
    float lr, weight_decay;

    static Step at(const Config& config, const StepScalars& step, const TensorScalars& tensor) {
      const float beta1 = float(config.beta1), beta2 = float(config.beta2);
      return {.beta1 = beta1,
              .one_minus_beta1 = 1.0f - beta1,
              .beta2 = beta2,
              .one_minus_beta2 = 1.0f - beta2,
              .lr = float(config.rate_of(step)),
              .weight_decay = float(config.decay_of(tensor))};
    }
    // 0 and NaN are returned unchanged.
    MPT_HD static float sign_of(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x; }
    template <class Ema>
    MPT_HD float advance(float w, float g, float* state, float scale = 1.0f) const {
      const float sign = sign_of(Ema::mean(beta1, one_minus_beta1, g, state[0]));
      state[0] = Ema::mean(beta2, one_minus_beta2, g, state[0]);
      return std::fma(w, weight_decay, scale * sign);
    }
    [[nodiscard]] MPT_HD static bool settled() { return true; }  // no bias correction
    MPT_HD float moved(float w, float dir) const { return std::fma(-lr, dir, w); }
    MPT_HD float change(float, float dir) const { return -(lr * dir); }
    MPT_HD static float only(Branch, float dir) { return dir; }
    MPT_HD static float limit_change(float, float y) { return y; }
  };
  using Steps = TypeList<Step>;
};

namespace rule_files {
using lion = Lion;
}

}  // namespace mpt
