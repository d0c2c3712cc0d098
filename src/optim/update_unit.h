// One optimizer step of one unit of up to 256 weights: decode, update in FP32 registers, encode.
#pragma once

#include "precision/codec.h"

namespace mpt {

// Weights, states and gradients share the grid. The unrounded moments of this step enter the update; they are
// rounded once, on store. grad_scale is the clipping factor of the step.
template <class Rule, class WeightCodec>
struct UpdateUnit {
  static constexpr int kStates = int(Rule::kStates.size());

  Rule rule;
  UnitGrid grid;
  WeightCodec weights;
  ElementCodec states[kStates];
  ElementCodec gradient;
  float grad_scale;
  DitherSource weight_dither;
  DitherSource state_dither[kStates];

  template <class G>
  MPT_HD void operator()(G group, int64_t unit) const {
    constexpr int kPart = LanePart<G>::kSize;
    const UnitSpan span = grid.span(unit);
    float w[kPart], g[kPart], s[kStates][kPart];
    weights.load(group, span, w);
    gradient.load(group, span, g);
    for (int i = 0; i < kStates; ++i) states[i].load(group, span, s[i]);
    update(w, g, s);
    weights.store(group, span, w, weight_dither.draw(group, span));
    for (int i = 0; i < kStates; ++i) states[i].store(group, span, s[i], state_dither[i].draw(group, span));
  }

 private:
  template <int kPart>
  MPT_HD void update(float (&w)[kPart], const float (&g)[kPart], float (&s)[kStates][kPart]) const {
#pragma omp simd
    for (int k = 0; k < kPart; ++k) {
      float state[kStates];
      for (int i = 0; i < kStates; ++i) state[i] = s[i][k];
      w[k] = rule.next(w[k], grad_scale * g[k], state);
      for (int i = 0; i < kStates; ++i) s[i][k] = state[i];
    }
  }
};

}  // namespace mpt
