// Compensated BF16 weights: next to each weight w, a second BF16 number c keeps the bits that
// rounding lost, so w + c has about 16 significant bits (docs/numerics.md "Kahan compensation").
//
// A compensated step maps (w, c, g, state) to {w', c'}; settled() is its rule's (rule.h). w' is a
// BF16 value; c' is rounded on store.
#pragma once

#include "core/bf16.h"
#include "optim/rule.h"

namespace mpt {

struct Compensated {
  float w, c;
};

// FP32 update; weight and residual are each rounded once. The rule's weight bound applies to the
// compensated weight w + c.
template <class Step>
struct KahanFused {
  static constexpr auto kStates = Step::kStates;
  static constexpr int kFactors = Step::kFactors, kBranches = Step::kBranches;

  Step step;

  static KahanFused at(const auto& config, const StepScalars& step, const TensorScalars& tensor) {
    return {Step::at(config, step, tensor)};
  }
  [[nodiscard]] MPT_HD bool settled() const { return step.settled(); }
  template <class Ema>
  MPT_HD Compensated next(float w, float c, float g, float* state) const {
    return next_by<Ema>(Branch::kBoth, w, c, g, state);
  }
  template <class Ema>
  MPT_HD Compensated next_by(Branch branch, float w, float c, float g, float* state) const {
    const auto move = step.only(branch, step.template advance<Ema>(w, g, state));
    const float y = step.limit_change(w, c + step.change(w, move));
    const float next = rounded_to<bf16>(w + y);
    return {next, (w - next) + y};
  }
};

}  // namespace mpt
