// Muon (docs/numerics.md "Muon"; Jordan et al. 2024, with the scale of Liu et al., arXiv
// 2502.16982): matrices of linear layers move along their mean gradient with all singular values
// made about equal; embedding, norms and head take AdamW steps.
#pragma once

#include "optim/rules/adamw.h"

namespace mpt {

struct Muon : PlainRule {
  struct Config : AdamConfig {
    static constexpr std::string_view kName = "muon";

    double momentum = 0.95;
    bool nesterov = true;

    bool operator==(const Config&) const = default;
    [[nodiscard]] std::vector<PeakRate> rates() const { return {{"lr_additive", lr_additive}}; }
    [[nodiscard]] std::string describe() const {
      return fmt::format(
          "lr {}, momentum {}{}; embedding, norms and head by AdamW, beta {} {}, "
          "eps {}",
          lr_additive, momentum, nesterov ? " (Nesterov)" : "", beta1, beta2, eps);
    }
    void fields(Fields& f);
  };

  // Linear layers. The last input of advance() is the orthogonalized direction
  // (orthogonalization.h).
  struct MatrixStep {
    static constexpr std::array<StateInfo, 1> kStates{{{"m", kMomentumRoundingStream}}};
    static constexpr int kFactors = 1, kBranches = 1;
    using Move = float;

    MeanGradient mean;
    float lr, weight_decay;

    static MatrixStep at(const Config& config, const StepScalars& step,
                         const TensorScalars& tensor) {
      return {.mean = MeanGradient::of(config.momentum),
              .lr = float(config.rate_of(step)),
              .weight_decay = float(config.decay_of(tensor))};
    }
    template <class Ema>
    MPT_HD float advance(float w, float g, float* state, float scale = 1.0f) const {
      state[0] = mean.next<Ema>(g, state[0]);
      return std::fma(w, weight_decay, scale * state[1]);
    }
    [[nodiscard]] MPT_HD static bool settled() { return true; }
    MPT_HD float moved(float w, float dir) const { return std::fma(-lr, dir, w); }
    MPT_HD float change(float, float dir) const { return -(lr * dir); }
    MPT_HD static float only(Branch, float dir) { return dir; }
    MPT_HD static float limit_change(float, float y) { return y; }
  };
  static constexpr int kSteps = 2;  // each is compiled separately
  using Steps = TypeList<AdamW::Step, MatrixStep>;

  static size_t step_of(const Config&, const TensorScalars& tensor) {
    return tensor.moments == Moments::kOrthogonalized ? 1 : 0;
  }
  static std::optional<OrthogonalizationOptions> orthogonalization(const Config& config) {
    return OrthogonalizationOptions{.momentum = config.momentum, .nesterov = config.nesterov};
  }
};

namespace rule_files {
using muon = Muon;
}

}  // namespace mpt
