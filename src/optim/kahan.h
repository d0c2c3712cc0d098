// Compensated BF16 weights: a second BF16 number c beside each weight w carries what rounding lost, so that
// w + c has about 16 significant bits (docs/numerics.md "Kahan compensation").
//
// A compensated step takes (w, c, g, state) to {w', c'} and is settled() as its rule is (rules.h); w' is a
// BF16 value, c' is rounded on store.
#pragma once

#include "optim/rules.h"

namespace mpt {

struct Compensated {
  float w, c;
};

// The update in FP32, weight and residual rounded once each. The bound of the rule's weights holds for the
// compensated weight w + c.
template <class Rule>
struct KahanFused {
  static constexpr auto kStates = Rule::kStates;
  static constexpr int kFactors = Rule::kFactors, kBranches = Rule::kBranches;

  Rule rule;

  [[nodiscard]] MPT_HD bool settled() const { return rule.settled(); }
  template <class Ema>
  MPT_HD Compensated next(float w, float c, float g, float* state) const {
    return next_by<Ema>(Branch::kBoth, w, c, g, state);
  }
  template <class Ema>
  MPT_HD Compensated next_by(Branch branch, float w, float c, float g, float* state) const {
    const auto move = rule.only(branch, rule.template advance<Ema>(w, g, state));
    const float y = rule.limit_change(w, c + rule.change(w, move));
    const float next = rounded_to<bf16>(w + y);
    return {next, (w - next) + y};
  }
};

// AdamW as optimizers written in eager BF16 have it (torchdistx AnyPrecisionAdamW, optimi): every operation
// on tensors rounds to BF16, and decay acts on the stored weight, outside the compensation. Moments advance
// as `precision.state_update` says; per_op there too is the whole of such an optimizer.
struct KahanPerOpAdamW {
  static constexpr auto kStates = AdamW::kStates;
  static constexpr int kFactors = 0, kBranches = 1;

  AdamMoments moments;
  float kept;             // 1 - lr wd
  float step_size;        // lr / (1 - b1^t)
  float root_correction;  // sqrt(1 - b2^t)

  [[nodiscard]] MPT_HD static bool settled() { return false; }  // its own corrections stay
  template <class Ema>
  MPT_HD Compensated next(float w, float c, float g, float* state) const {
    const float decayed = stored(w * kept);
    moments.update<Ema>(g, state[0], state[1]);
    const float root = stored(stored(stored(std::sqrt(state[1])) / root_correction) + moments.eps);
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

}  // namespace mpt
