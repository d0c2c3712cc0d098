// The additive twin of M+Adam, docs/numerics.md "The additive twin": w' = w - lr ((m^ + k g) /
// (sqrt(v^) + eps) + wd w). It is M+Adam without the factor of the weight: the control for whether
// M+Adam's gain needs a multiplication. Up to the rate it is QHAdam with nu1 = 1 / (1 + k), nu2 = 1
// (Ma and Yarats).
#pragma once

#include "optim/adam_moments.h"

namespace mpt {

struct AdditiveTwin : PlainRule {
  struct Config : AdamConfig {
    static constexpr std::string_view kName = "additive_twin";

    double gradient_ratio = 0.5;

    bool operator==(const Config&) const = default;
    [[nodiscard]] std::vector<PeakRate> rates() const { return {{"lr_additive", lr_additive}}; }
    [[nodiscard]] std::string describe() const {
      return fmt::format("lr {}, gradient_ratio {}, beta {} {}, eps {}", lr_additive,
                         gradient_ratio, beta1, beta2, eps);
    }
    void fields(Fields& f);
  };

  struct Step {
    static constexpr std::array<StateInfo, 2> kStates{
        {{"m", kMomentumRoundingStream}, {"v", kVarianceRoundingStream}}};
    static constexpr int kFactors = 0, kBranches = 1;
    using Move = float;

    AdamMoments moments;
    float gradient_ratio, lr, weight_decay;

    static Step at(const Config& config, const StepScalars& step, const TensorScalars& tensor) {
      return {.moments = AdamMoments::at(config, step.t),
              .gradient_ratio = float(config.gradient_ratio),
              .lr = float(config.rate_of(step)),
              .weight_decay = float(config.decay_of(tensor))};
    }
    template <class Ema>
    MPT_HD float advance(float w, float g, float* state, float scale = 1.0f) const {
      moments.update<Ema>(g, state[0], state[1]);
      const float mean = Ema::corrected(state[0], moments.correction1);
      const float dir = std::fma(gradient_ratio, g, mean) / moments.root<Ema>(state[1]);
      return std::fma(w, weight_decay, scale * dir);
    }
    [[nodiscard]] MPT_HD bool settled() const { return moments.settled(); }
    MPT_HD float moved(float w, float dir) const { return std::fma(-lr, dir, w); }
    MPT_HD float change(float, float dir) const { return -(lr * dir); }
    MPT_HD static float only(Branch, float dir) { return dir; }
    MPT_HD static float limit_change(float, float y) { return y; }
  };
  using Steps = TypeList<Step>;
};

namespace rule_files {
using additive_twin = AdditiveTwin;
}

}  // namespace mpt
