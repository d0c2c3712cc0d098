// One optimizer step of one unit of up to 256 weights: decode, update in FP32 registers, encode.
//
// Weights, states and gradients share the grid. The moments of this step enter the update as the rule's Ema
// leaves them and are rounded on store.
#pragma once

#include <type_traits>
#include <utility>

#include "optim/kahan.h"
#include "precision/codec.h"
#include "precision/codec_nvfp4.h"
#include "precision/precision_config.h"
#include "precision/upcoming.h"

namespace mpt {

// One number for every element, row or column of a matrix, by its steps: 0 where they share one.
struct SharedFactors {
  const float* values = nullptr;
  int64_t row_step = 0;
  int64_t col_step = 0;  // 0 or 1

  template <class G>
  MPT_HD void load(G group, UnitSpan unit, float (&x)[LanePart<G>::kSize]) const {
    const LanePart<G> part(group, unit);
    const float* const source = values + unit.row * row_step;
    if (col_step == 0) {
      for (float& value : x) value = *source;
    } else {
#pragma unroll
      for (int k = 0; k < LanePart<G>::kSize; ++k) x[k] = k < part.size ? source[part.col + k] : 0.0f;
    }
  }
};

// What the device knows of a step: found by measure(), or set by the host.
struct StepControl {
  double grad_norm = 0;     // of all gradients, before clipping
  float grad_scale = 1.0f;  // the clipping factor
  int32_t proceed = 1;      // 0: loss or norm is not finite, and nothing is updated
};

// min(1, clip / (norm + 1e-6)); 1 when clipping is off (clip = 0). A norm that is NaN gives NaN, never "no
// clipping".
MPT_HD float clip_scale(double clip_grad_norm, double norm) {
  const double factor = clip_grad_norm / (norm + 1e-6);
  return clip_grad_norm > 0 ? float(factor > 1.0 ? 1.0 : factor) : 1.0f;
}

// What a unit reads and writes besides its weights.
template <int kStates>
struct UnitStates {
  UnitGrid grid;
  ElementCodec states[kStates];
  DitherSource dithers[kStates];
  StateUpdate state_update;
  ElementCodec gradient;
  const StepControl* control;
  SharedFactors factors;
  const float* mean_scale;  // of nvfp4 blocks, of which additive directions are multiples; null: they are not
};

// What the additive direction of every element is multiplied by: 1 but for nvfp4. Decay is not: it is a
// multiple of the weight, and so follows the scale of its block by itself.
template <class WeightCodec, class G>
struct AdditiveScales {
  MPT_HD AdditiveScales(const WeightCodec&, G, UnitSpan, const float*) {}
  MPT_HD constexpr float operator[](int) const { return 1.0f; }
};
template <class G>
struct AdditiveScales<Nvfp4Codec, G> {
  float of_element[LanePart<G>::kSize];

  MPT_HD AdditiveScales(const Nvfp4Codec& weights, G group, UnitSpan span, const float* mean_scale) {
    weights.relative_scales(group, span, mean_scale, of_element);
  }
  MPT_HD float operator[](int k) const { return of_element[k]; }
};

// The lane's part of it and of the weights, in FP32. All in one object, so that the compiler knows that
// nothing overlaps.
template <class Rule, int kPart>
struct UnitValues {
  static constexpr int kStates = int(Rule::kStates.size());
  static constexpr int kInputs = kStates + Rule::kFactors;

  static constexpr bool kAlone = kPart == kUnit;  // the lane has the unit to itself

  float w[kPart];
  float g[kPart];
  float s[kInputs][kPart];
  Upcoming<2 + kStates> upcoming;

  template <class WeightCodec, class G>
  MPT_HD void load(const WeightCodec& weights, const UnitStates<kStates>& from, G group, UnitSpan span) {
    weights.load(group, span, w);
    from.gradient.load(group, span, g);
    const float grad_scale = from.control->grad_scale;
#pragma omp simd
    for (int k = 0; k < kPart; ++k) g[k] = grad_scale * g[k];
#pragma unroll
    for (int i = 0; i < kStates; ++i) from.states[i].load(group, span, s[i]);
    if constexpr (Rule::kFactors == 1) from.factors.load(group, span, s[kStates]);
    if constexpr (kAlone) {
      upcoming.follow(weights.memory(span));
      upcoming.follow(from.gradient.memory(span));
      for (int i = 0; i < kStates; ++i) upcoming.follow(from.states[i].memory(span));
    }
  }
  template <class G>
  MPT_HD void store(const UnitStates<kStates>& to, G group, UnitSpan span) const {
#pragma unroll
    for (int i = 0; i < kStates; ++i) to.states[i].store(group, span, s[i], to.dithers[i].draw(group, span));
  }

  // step(k, g, state) for every element, which may update its states. The loop vectorises as long as it bears
  // no `omp simd`, which would give every lane of it a `state` in memory; unrolled, a GPU keeps all in
  // registers.
  template <class Step>
  MPT_HD void each(const Step& step) {
    each(step, std::make_integer_sequence<int, kInputs>{});
  }

 private:
  template <class Step, int... i>
  MPT_HD void each(const Step& step, std::integer_sequence<int, i...>) {
    constexpr int kAtOnce = kAlone ? Upcoming<1>::kElements : kPart;
#pragma unroll
    for (int first = 0; first < kPart; first += kAtOnce) {
      if constexpr (kAlone) upcoming.fetch(first);
#pragma unroll
      for (int k = first; k < first + kAtOnce; ++k) {
        float state[kInputs] = {s[i][k]...};
        step(k, g[k], state);
        ((s[i][k] = state[i]), ...);
      }
    }
  }
};

// f(ema): how the rule's moments advance. A lone lane, which the divisions of corrections would hold up,
// leaves out those by 1.
template <class G, class Rule, class F>
MPT_HD void with_ema(const Rule& rule, StateUpdate update, const F& f) {
  if (update == StateUpdate::kPerOp) return f(EmaPerOp{});
  if constexpr (G::kLanes == 1)
    if (rule.settled()) return f(Settled<EmaOnce>{});
  f(EmaOnce{});
}

// values.w become the unrounded weights after the step, values.s the moments.
template <class Ema, class Rule, int kPart, class Scales>
MPT_HD void advance_weights(Rule rule, const Scales& scales, UnitValues<Rule, kPart>& values) {
  values.each([&](int k, float g, float* state) {
    values.w[k] = next_weight<Ema>(rule, values.w[k], g, state, scales[k]);
  });
}

// Weights rounded to their format on store.
template <class Rule, class WeightCodec>
struct UpdateUnit {
  static constexpr int kStates = int(Rule::kStates.size());
  static constexpr bool kFindsMaximum = std::is_same_v<WeightCodec, Nvfp4Codec>;  // next_maximum() is of use

  Rule rule;
  UnitStates<kStates> states;
  WeightCodec weights;
  DitherSource dither;

  template <class G>
  MPT_HD void operator()(G group, int64_t unit) const {
    constexpr int kPart = LanePart<G>::kSize;
    const UnitSpan span = states.grid.span(unit);
    UnitValues<Rule, kPart> values;
    const AdditiveScales<WeightCodec, G> scales(weights, group, span, states.mean_scale);
    values.load(weights, states, group, span);
    with_ema<G>(rule, states.state_update,
                [&](auto ema) { advance_weights<decltype(ema)>(rule, scales, values); });
    weights.store(group, span, values.w, dither.draw(group, span));
    values.store(states, group, span);
  }

  // max |w'| of the unit, for formats that need it of the whole tensor before they can encode. Writes
  // nothing.
  template <class G>
  MPT_HD float next_maximum(G group, int64_t unit) const {
    constexpr int kPart = LanePart<G>::kSize;
    const UnitSpan span = states.grid.span(unit);
    UnitValues<Rule, kPart> values;
    const AdditiveScales<WeightCodec, G> scales(weights, group, span, states.mean_scale);
    values.load(weights, states, group, span);
    with_ema<G>(rule, states.state_update,
                [&](auto ema) { advance_weights<decltype(ema)>(rule, scales, values); });
    // Beyond the part's end weights are 0.
    float own = 0.0f;
#pragma omp simd reduction(max : own)
    for (int k = 0; k < kPart; ++k) own = std::fabs(values.w[k]) > own ? std::fabs(values.w[k]) : own;
    return group.reduce_max(own);
  }
};

// Compensated BF16 weights: Step is KahanFused of a rule or KahanPerOpAdamW.
template <class Step>
struct KahanUnit {
  static constexpr int kStates = int(Step::kStates.size());
  static constexpr bool kFindsMaximum = false;

  Step step;
  UnitStates<kStates> states;
  ElementCodec weights, residuals;

  template <class G>
  MPT_HD void operator()(G group, int64_t unit) const {
    constexpr int kPart = LanePart<G>::kSize;
    const UnitSpan span = states.grid.span(unit);
    UnitValues<Step, kPart> values;
    float c[kPart];
    residuals.load(group, span, c);
    values.load(weights, states, group, span);
    with_ema<G>(step, states.state_update, [&](auto ema) { advance<decltype(ema)>(step, values, c); });
    const Dither<kPart> nearest = DitherSource{}.draw(group, span);
    weights.store(group, span, values.w, nearest);
    residuals.store(group, span, c, nearest);
    values.store(states, group, span);
  }

 private:
  template <class Ema, int kPart>
  MPT_HD static void advance(Step step, UnitValues<Step, kPart>& values, float (&residual)[kPart]) {
    float c[kPart];
    memcpy(c, residual, sizeof c);
    values.each([&](int k, float g, float* state) {
      const Compensated next = step.template next<Ema>(values.w[k], c[k], g, state);
      values.w[k] = next.w;
      c[k] = next.c;
    });
    memcpy(residual, c, sizeof c);
  }
};

}  // namespace mpt
