// Passes over a matrix before and between the GEMMs that orthogonalize it, for any Exec.
#pragma once

#include "optim/adam_moments.h"
#include "optim/update/tensor_inputs.h"
#include "optim/update/tensor_update.h"

namespace mpt {

// Mean gradient after this step, or one step further ahead (Nesterov). Stores no state.
struct MeanDirection {
  BlockGrid grid;
  ElementCodec gradient, stored_mean;
  StateUpdate state_update;
  const StepControl* control;
  MeanGradient mean;
  bool nesterov;
  KeptCodes<float> result;

  template <class G>
  MPT_HD void operator()(G group, int64_t block) const {
    constexpr int kPart = LanePart<G>::kSize;
    const BlockSpan span = grid.span(block);
    float g[kPart], m[kPart];
    gradient.load(group, span, g);
    stored_mean.load(group, span, m);
    const float grad_scale = control->grad_scale;
    for (int k = 0; k < kPart; ++k) {
      const float scaled = grad_scale * g[k];
      const float next = state_update == StateUpdate::kPerOp ? mean.next<EmaPerOp>(scaled, m[k])
                                                             : mean.next<EmaOnce>(scaled, m[k]);
      m[k] = nesterov ? mean.next<EmaOnce>(scaled, next) : next;
    }
    result.store(group, span, m);
  }
};

// sums[0] = sqrt(sum of the squares) + 1e-7, overwriting the first square.
struct Divisor {
  double* sums;
  int64_t count;

  template <class G>
  MPT_HD void operator()(G group, int64_t) const {
    const double* const squares = sums;
    const double sum = group.sum(count, [=](int64_t i) { return squares[i]; });
    if (group.lane() == 0) sums[0] = std::sqrt(sum) + 1e-7;
  }
};
struct Divide {
  const double* divisor;
  float* x;

  MPT_HD void operator()(int64_t i) const { x[i] /= float(*divisor); }
};

// x = alpha x + beta y
struct Combine {
  float* x;
  float alpha;
  const float* y;
  float beta;

  MPT_HD void operator()(int64_t i) const { x[i] = std::fma(alpha, x[i], beta * y[i]); }
};

}  // namespace mpt
