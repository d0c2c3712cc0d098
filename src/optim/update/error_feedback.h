// Returns the rounding errors of stored weights through the first moment, without extra memory
// (ECO; docs/numerics.md "Error feedback").
#pragma once

#include <concepts>

#include "optim/adam_moments.h"

namespace mpt {

// Steps whose first moment can absorb errors: those with an Adam direction.
template <class Step>
concept TakesErrors = requires(const Step& step) {
  { step.moments } -> std::convertible_to<const AdamMoments&>;
};

template <TakesErrors Step>
struct ErrorFeedback {
  static constexpr auto kStates = Step::kStates;
  static constexpr int kFactors = Step::kFactors, kBranches = Step::kBranches;
  using Move = typename Step::Move;

  Step step;
  float coefficient;  // (1 - 1 / beta1) (1 - beta1^t) / lr; 0 at a rate of 0

  static ErrorFeedback at(const auto& config, const StepScalars& step,
                          const TensorScalars& tensor) {
    const Step inner = Step::at(config, step, tensor);
    const double beta1 = inner.moments.beta1, lr = float(config.rate_of(step));
    const double of_error = (1 - 1 / beta1) * inner.moments.correction1.value / lr;
    return {inner, lr > 0 ? float(of_error) : 0.0f};
  }
  // Adds to m the amount that later steps together turn into +error.
  template <class Ema>
  MPT_HD void take(float error, float* state) const {
    const float root = step.moments.template root<Ema>(state[1]);
    state[0] = std::fma(coefficient * root, error, state[0]);
  }
};

}  // namespace mpt
