// Inputs and outputs of a tensor's update other than the weights.
#pragma once

#include "precision/codec.h"
#include "precision/precision_config.h"

namespace mpt {

// One factor per row, column or matrix: a step of 0 shares factors along that axis.
struct SharedFactors {
  const float* values = nullptr;
  int64_t row_step = 0;
  int64_t col_step = 0;  // 0 or 1

  template <class G>
  MPT_HD void load(G group, BlockSpan span, float (&x)[LanePart<G>::kSize]) const {
    const LanePart<G> part(group, span);
    const float* const source = values + span.row * row_step;
    if (col_step == 0) {
      for (float& value : x) value = *source;
    } else {
#pragma unroll
      for (int k = 0; k < LanePart<G>::kSize; ++k)
        x[k] = k < part.size ? source[part.col + k] : 0.0f;
    }
  }
};

// Scalars of a step that the device computes in Optimizer::measure_gradients() or the host sets.
struct StepControl {
  double grad_norm = 0;     // over all gradients, before clipping
  float grad_scale = 1.0f;  // the clipping factor
  int32_t proceed = 1;      // 0: loss or norm is not finite or a spike; nothing is updated
};

// min(1, clip / (norm + 1e-6)); 1 if clipping is off (clip = 0). A NaN norm gives NaN, not "no
// clipping".
MPT_HD float clip_scale(double clip_grad_norm, double norm) {
  const double factor = clip_grad_norm / (norm + 1e-6);
  return clip_grad_norm > 0 ? float(factor > 1.0 ? 1.0 : factor) : 1.0f;
}

// Gradient, states and step scalars of one tensor with kStates states per weight.
template <int kStates>
struct TensorInputs {
  BlockGrid grid;
  ElementCodec states[kStates];
  DitherSource dithers[kStates];
  StateUpdate state_update;
  ElementCodec gradient;
  const StepControl* control;
  SharedFactors factors;
  const float* mean_scale;  // mean block scale for relative additive rates; null: one rate

  // No padding between rows.
  [[nodiscard]] bool contiguous() const {
    bool all = gradient.stride == grid.cols;
    for (const ElementCodec& state : states) all = all && state.stride == grid.cols;
    return all;
  }
};

// Residuals of weights, laid out like the states.
template <class Code>
struct KeptCodes {
  Code* data;
  int64_t stride;  // numbers between rows

  template <class G>
  MPT_HD void load(G group, BlockSpan span, Code (&x)[LanePart<G>::kSize]) const {
    const LanePart<G> part(group, span);
    read_neighbours<Code>(at(span, part), part.size, x);
  }
  template <class G>
  MPT_HD void store(G group, BlockSpan span, const Code (&x)[LanePart<G>::kSize]) const {
    const LanePart<G> part(group, span);
    write_neighbours<Code>(x, part.size, at(span, part));
  }

 private:
  template <class Part>
  [[nodiscard]] MPT_HD Code* at(BlockSpan span, const Part& part) const {
    return data + span.row * stride + part.col;
  }
};

// If all moments are stored as T with rounding to nearest, and the gradient as D, calls f(T{}, D{})
// and returns true. Otherwise returns false; also for FP32 moments that round after every
// operation, which no config has.
template <int kStates, class F>
bool with_stored_types(const TensorInputs<kStates>& states, const F& f) {
  const auto moments = [&]<class T>(T) {
    for (int i = 0; i < kStates; ++i)
      if (!states.states[i].template stores<T>(states.dithers[i].rounding)) return false;
    if (states.gradient.dtype == DType::kF32)
      f(T{}, float{});
    else
      f(T{}, bf16{});
    return true;
  };
  return (states.state_update == StateUpdate::kOnce && moments(float{})) || moments(bf16{});
}

}  // namespace mpt
