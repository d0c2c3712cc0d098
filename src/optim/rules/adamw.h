// AdamW (Loshchilov and Hutter), docs/numerics.md "AdamW": w' = w - lr (m^ / (sqrt(v^) + eps) + wd
// w).
#pragma once

#include "optim/adam_moments.h"
#include "optim/update/kahan.h"

namespace mpt {

struct AdamW : PlainRule {
  struct Config : AdamConfig {
    static constexpr std::string_view kName = "adamw";

    bool operator==(const Config&) const = default;
    [[nodiscard]] std::vector<PeakRate> rates() const { return {{"lr_additive", lr_additive}}; }
    [[nodiscard]] std::string describe() const {
      return fmt::format("lr {}, beta {} {}, eps {}", lr_additive, beta1, beta2, eps);
    }
  };

  struct Step {
    static constexpr std::array<StateInfo, 2> kStates{
        {{"m", kMomentumRoundingStream}, {"v", kVarianceRoundingStream}}};
    static constexpr int kFactors = 0, kBranches = 1;
    using Move = float;

    AdamMoments moments;
    float lr, weight_decay;

    static Step at(const AdamConfig& config, const StepScalars& step, const TensorScalars& tensor) {
      return {.moments = AdamMoments::at(config, step.t),
              .lr = float(config.rate_of(step)),
              .weight_decay = float(config.decay_of(tensor))};
    }
    template <class Ema>
    MPT_HD float advance(float w, float g, float* state, float scale = 1.0f) const {
      moments.update<Ema>(g, state[0], state[1]);
      return std::fma(w, weight_decay, scale * moments.direction<Ema>(state[0], state[1]));
    }
    [[nodiscard]] MPT_HD bool settled() const { return moments.settled(); }
    MPT_HD float moved(float w, float dir) const { return std::fma(-lr, dir, w); }
    MPT_HD float change(float, float dir) const { return -(lr * dir); }
    MPT_HD static float only(Branch, float dir) { return dir; }
    MPT_HD static float limit_change(float, float y) { return y; }
  };
  using Steps = TypeList<Step>;

  // Arithmetic of eager BF16 optimizers (torchdistx AnyPrecisionAdamW, optimi): every tensor
  // operation rounds to BF16, and decay acts on the stored weight, outside the compensation.
  // `precision.state_update` sets how moments advance; per_op reproduces those optimizers exactly.
  struct EagerKahan {
    static constexpr auto kStates = Step::kStates;
    static constexpr int kFactors = 0, kBranches = 1;

    AdamMoments moments;
    float kept;             // 1 - lr wd
    float step_size;        // lr / (1 - b1^t)
    float root_correction;  // sqrt(1 - b2^t)

    static EagerKahan at(const Config& config, const StepScalars& step,
                         const TensorScalars& tensor) {
      const double rate = config.rate_of(step);
      const auto correction_of = [&](double beta) {
        return config.bias_correction ? 1.0 - std::pow(beta, double(step.t)) : 1.0;
      };
      return {.moments = AdamMoments::at(config, step.t),
              .kept = float(1.0 - rate * config.decay_of(tensor)),
              .step_size = float(rate / correction_of(config.beta1)),
              .root_correction = float(std::sqrt(correction_of(config.beta2)))};
    }
    [[nodiscard]] MPT_HD static bool settled() { return false; }  // applies its own corrections
    template <class Ema>
    MPT_HD Compensated next(float w, float c, float g, float* state) const {
      const float decayed = stored(w * kept);
      moments.update<Ema>(g, state[0], state[1]);
      const float root =
          stored(stored(stored(std::sqrt(state[1])) / root_correction) + moments.eps);
      const float change = stored(c + -step_size * (state[0] / root));
      const float next = stored(decayed + change);
      return {next, change + stored(decayed - next)};
    }
    template <class Ema>
    MPT_HD Compensated next_by(Branch, float w, float c, float g, float* state) const {
      return next<Ema>(w, c, g, state);
    }

   private:
    MPT_HD static float stored(float x) { return rounded_to<bf16>(x); }
  };
};

namespace rule_files {
using adamw = AdamW;
}

}  // namespace mpt
