// The step of one tensor, one update block at a time: decode, update in FP32, encode.
//
// Weights, states and gradients share the grid. The update uses the new moments as computed by the
// rule's Ema; they are rounded on store. A serial lane updates in place where elements are stored
// individually (InPlaceBlock).
#pragma once

#include <type_traits>
#include <utility>

#include "optim/update/error_feedback.h"
#include "optim/update/kahan.h"
#include "optim/update/kept_weight.h"
#include "optim/update/update_block.h"

namespace mpt {

// Factor on each element's additive direction, proportional to the scale of its block; 1 for
// formats without relative scales. Decay is a multiple of the weight and follows the scale anyway.
template <class WeightCodec, class G, bool kRelative = WeightCodec::kRelativeScales>
struct AdditiveScales {
  MPT_HD AdditiveScales(const WeightCodec&, G, BlockSpan, const float*) {}
  MPT_HD constexpr float operator[](int64_t) const { return 1.0f; }
};
template <class WeightCodec, class G>
struct AdditiveScales<WeightCodec, G, true> {
  float of_element[LanePart<G>::kSize];

  MPT_HD AdditiveScales(const WeightCodec& weights, G group, BlockSpan span,
                        const float* mean_scale) {
    weights.relative_scales(group, span, mean_scale, of_element);
  }
  MPT_HD float operator[](int64_t k) const { return of_element[k]; }
};

// Calls f(ema) with the Ema by which the rule's moments advance. Skips bias correction once it
// equals 1, because its divisions are slow; the bits are the same.
template <class Step, class F>
MPT_HD void with_ema(const Step& step, StateUpdate update, const F& f) {
  if (update == StateUpdate::kPerOp) return f(EmaPerOp{});
  if (step.settled()) return f(Settled<EmaOnce>{});
  f(EmaOnce{});
}
// Like with_ema(), where all moments are stored as T (with_stored_types).
template <class T, class Step, class F>
MPT_HD void with_ema_of(const Step& step, StateUpdate update, const F& f) {
  if constexpr (std::is_same_v<T, bf16>) return with_ema(step, update, f);
  if (step.settled()) return f(Settled<EmaOnce>{});
  f(EmaOnce{});
}

// Replaces values.w by the new weights, unrounded, and values.s by the new moments.
template <class Ema, class Step, int kPart, class Scales>
MPT_HD void advance_weights(Step step, const Scales& scales, RegisterBlock<Step, kPart>& values) {
  values.each([&](int k, float g, float* state) {
    values.w[k] = next_weight<Ema>(step, values.w[k], g, state, scales[k]);
  });
}

template <int kPart>
MPT_HD float largest_of(const float (&w)[kPart]) {
  float most = 0.0f;
#pragma omp simd reduction(max : most)
  for (int k = 0; k < kPart; ++k) most = std::fabs(w[k]) > most ? std::fabs(w[k]) : most;
  return most;
}

// Weights rounded to their format on store.
template <class S, class WeightCodec>
struct TensorUpdate {
  using Step = S;
  static constexpr int kStates = int(Step::kStates.size());
  static constexpr bool kFindsMaximum = WeightCodec::kNeedsMaximum;  // next_maximum() is needed

  Step step;
  TensorInputs<kStates> in;
  WeightCodec weights;
  DitherSource dither;

  template <class G>
  MPT_HD void operator()(G group, int64_t block) const {
    constexpr int kPart = LanePart<G>::kSize;
    const BlockSpan span = in.grid.span(block);
    if constexpr (G::kLanes == 1)
      if (with_stored_types(in, [&]<class T, class D>(T, D) { update_in_place<T, D>(span); }))
        return;
    RegisterBlock<Step, kPart> values;
    const AdditiveScales<WeightCodec, G> scales(weights, group, span, in.mean_scale);
    values.load(weights, in, group, span);
    with_ema(step, in.state_update,
             [&](auto ema) { advance_weights<decltype(ema)>(step, scales, values); });
    weights.store(group, span, values.w, dither.draw(group, span));
    values.store(in, group, span);
  }

  // Updates blocks [first, end) on a serial lane; contiguous numbers are updated as one long row.
  void run(SerialGroup serial, int64_t first, int64_t end) const {
    if constexpr (kElementwise && Step::kFactors == 0)
      if (in.contiguous() && weights.stride == in.grid.cols && first < end) {
        bool done = false;
        with_stored_types(in, [&]<class T, class D>(T, D) {
          done = advance_stored<T, D>(in.grid.flat(first, end));
        });
        if (done) return;
      }
    for (int64_t block = first; block < end; ++block) (*this)(serial, block);
  }

  // Returns max |w'| of the block, for formats that need the tensor's maximum before encoding.
  // Writes nothing.
  template <class G>
  MPT_HD float next_maximum(G group, int64_t block) const {
    constexpr int kPart = LanePart<G>::kSize;
    const BlockSpan span = in.grid.span(block);
    if constexpr (G::kLanes == 1) {
      float most = 0.0f;
      if (with_stored_types(
              in, [&]<class T, class D>(T, D) { most = next_maximum_in_place<T, D>(span); }))
        return most;
    }
    RegisterBlock<Step, kPart> values;
    const AdditiveScales<WeightCodec, G> scales(weights, group, span, in.mean_scale);
    values.load(weights, in, group, span);
    with_ema(step, in.state_update,
             [&](auto ema) { advance_weights<decltype(ema)>(step, scales, values); });
    // Weights past the end of the part are 0.
    return group.reduce_max(largest_of(values.w));
  }

 private:
  static constexpr bool kElementwise = std::is_same_v<WeightCodec, ElementCodec>;

  // If weights are stored as T too, updates them and returns true.
  template <class T, class D>
  [[nodiscard]] bool advance_stored(BlockSpan span) const {
    if constexpr (kElementwise)
      if (weights.template stores<T>(dither.rounding)) {
        advance_in_place<T, D, NewStates::kStored>(span,
                                                   Stored<T>{weights.template elements<T>(span)});
        return true;
      }
    return false;
  }
  template <class T, class D>
  void update_in_place(BlockSpan span) const {
    if (advance_stored<T, D>(span)) return;
    float w[kUpdateBlock];
    weights.load(SerialGroup{}, span, w);
    advance_in_place<T, D, NewStates::kStored>(span, Stored<float>{w});
    weights.store(SerialGroup{}, span, w, dither.draw(SerialGroup{}, span));
  }
  template <class T, class D>
  float next_maximum_in_place(BlockSpan span) const {
    float w[kUpdateBlock];
    weights.load(SerialGroup{}, span, w);
    advance_in_place<T, D, NewStates::kDropped>(span, Stored<float>{w});
    return largest_of(w);
  }
  // Replaces w by the new weights, unrounded or rounded to their storage type.
  template <class T, class D, NewStates kNew, class W>
  void advance_in_place(BlockSpan span, Stored<W> w) const {
    InPlaceBlock<Step, T, D> values(in, span);
    values.next_block.follow(weights.memory(span));
    const AdditiveScales<WeightCodec, SerialGroup> scales(weights, SerialGroup{}, span,
                                                          in.mean_scale);
    with_ema_of<T>(step, in.state_update, [&](auto ema) {
      values.template each<kNew>([=, &scales, step = step](int64_t k, float g, float* state) {
        w.set(k, next_weight<decltype(ema)>(step, w.get(k), g, state, scales[k]));
      });
    });
  }
};

// Compensated BF16 weights. Step is KahanFused of a rule's step or a rule's EagerKahan.
template <class S>
struct CompensatedUpdate {
  using Step = S;
  static constexpr int kStates = int(Step::kStates.size());
  static constexpr bool kFindsMaximum = false;

  Step step;
  TensorInputs<kStates> in;
  ElementCodec weights, residuals;

  template <class G>
  MPT_HD void operator()(G group, int64_t block) const {
    constexpr int kPart = LanePart<G>::kSize;
    const BlockSpan span = in.grid.span(block);
    if constexpr (G::kLanes == 1)
      if (with_stored_types(in, [&]<class T, class D>(T, D) { update_in_place<T, D>(span); }))
        return;
    RegisterBlock<Step, kPart> values;
    float c[kPart];
    residuals.load(group, span, c);
    values.load(weights, in, group, span);
    with_ema(step, in.state_update, [&](auto ema) { advance<decltype(ema)>(step, values, c); });
    const Dither<kPart> nearest = DitherSource{}.draw(group, span);
    weights.store(group, span, values.w, nearest);
    residuals.store(group, span, c, nearest);
    values.store(in, group, span);
  }

  // Updates blocks [first, end) on a serial lane; contiguous numbers are updated as one long row.
  void run(SerialGroup serial, int64_t first, int64_t end) const {
    if constexpr (Step::kFactors == 0)
      if (in.contiguous() && weights.stride == in.grid.cols && residuals.stride == in.grid.cols &&
          first < end && with_stored_types(in, [&]<class T, class D>(T, D) {
            update_in_place<T, D>(in.grid.flat(first, end));
          }))
        return;
    for (int64_t block = first; block < end; ++block) (*this)(serial, block);
  }

 private:
  template <class Ema, int kPart>
  MPT_HD static void advance(Step step, RegisterBlock<Step, kPart>& values,
                             float (&residual)[kPart]) {
    float c[kPart];
    memcpy(c, residual, sizeof c);
    values.each([&](int k, float g, float* state) {
      const Compensated next = step.template next<Ema>(values.w[k], c[k], g, state);
      values.w[k] = next.w;
      c[k] = next.c;
    });
    memcpy(residual, c, sizeof c);
  }

  template <class T, class D>
  void update_in_place(BlockSpan span) const {
    InPlaceBlock<Step, T, D> values(in, span);
    values.next_block.follow(weights.memory(span));
    values.next_block.follow(residuals.memory(span));
    const Stored<bf16> w{weights.template elements<bf16>(span)},
        c{residuals.template elements<bf16>(span)};
    with_ema_of<T>(step, in.state_update, [&](auto ema) {
      values.each([=, step = step](int64_t k, float g, float* state) {
        const Compensated next = step.template next<decltype(ema)>(w.get(k), c.get(k), g, state);
        w.set(k, next.w);
        c.set(k, next.c);
      });
    });
  }
};

// Weights whose rounding errors are returned through the first moment. S is the step of a rule.
template <TakesErrors S, class WeightCodec>
struct FeedbackUpdate : TensorUpdate<S, WeightCodec> {
  using Step = ErrorFeedback<S>;

  Step feedback;

  template <class G>
  MPT_HD void operator()(G group, int64_t block) const {
    constexpr int kPart = LanePart<G>::kSize;
    const BlockSpan span = this->in.grid.span(block);
    const Dither<kPart> random = this->dither.draw(group, span);
    RegisterBlock<S, kPart> values;
    const AdditiveScales<WeightCodec, G> scales(this->weights, group, span, this->in.mean_scale);
    values.load(this->weights, this->in, group, span);
    with_ema(this->step, this->in.state_update, [&](auto ema) {
      advance_weights<decltype(ema)>(this->step, scales, values);
      float error[kPart];
      memcpy(error, values.w, sizeof error);
      this->weights.round(group, span, error, random);
      for (int k = 0; k < kPart; ++k) error[k] = values.w[k] - error[k];
      values.each([&](int k, float, float* state) {
        feedback.template take<decltype(ema)>(error[k], state);
      });
    });
    this->weights.store(group, span, values.w, random);
    values.store(this->in, group, span);
  }
  void run(SerialGroup serial, int64_t first, int64_t end) const {
    for (int64_t block = first; block < end; ++block) (*this)(serial, block);
  }
};

// Weights as a rule sees them; Kept keeps the bits that rounding drops.
template <class WeightCodec, class Kept>
struct ExactWeights {
  WeightCodec weights;
  KeptCodes<typename Kept::Code> kept;

  template <class G>
  MPT_HD void load(G group, BlockSpan span, float (&w)[LanePart<G>::kSize]) const {
    constexpr int kPart = LanePart<G>::kSize;
    weights.load(group, span, w);
    typename Kept::Code codes[kPart];
    kept.load(group, span, codes);
#pragma unroll
    for (int k = 0; k < kPart; ++k) w[k] = Kept::exact(w[k], codes[k]);
  }
};

// Update of weights with residuals.
template <class S, class WeightCodec, class Kept>
struct KeptUpdate {
  using Step = S;
  using Code = typename Kept::Code;
  static constexpr int kStates = int(Step::kStates.size());
  static constexpr bool kFindsMaximum = WeightCodec::kNeedsMaximum;

  Step step;
  TensorInputs<kStates> in;
  WeightCodec weights;
  KeptCodes<Code> kept;

  template <class G>
  MPT_HD void operator()(G group, int64_t block) const {
    constexpr int kPart = LanePart<G>::kSize;
    const BlockSpan span = in.grid.span(block);
    RegisterBlock<Step, kPart> values;
    load(group, span, values);
    advance(group, span, values);
    Code codes[kPart];
#pragma unroll
    for (int k = 0; k < kPart; ++k) Kept::split(values.w[k], values.w[k], codes[k]);
    weights.store(group, span, values.w, DitherSource{}.draw(group, span));
    kept.store(group, span, codes);
    values.store(in, group, span);
  }
  void run(SerialGroup serial, int64_t first, int64_t end) const {
    for (int64_t block = first; block < end; ++block) (*this)(serial, block);
  }

  // Returns max |w'| of the block before rounding to the format. Writes nothing.
  template <class G>
  MPT_HD float next_maximum(G group, int64_t block) const {
    const BlockSpan span = in.grid.span(block);
    RegisterBlock<Step, LanePart<G>::kSize> values;
    load(group, span, values);
    advance(group, span, values);
    return group.reduce_max(largest_of(values.w));
  }

  // Loads exact weights, and gradient and states as stored.
  template <class G, int kPart>
  MPT_HD void load(G group, BlockSpan span, RegisterBlock<Step, kPart>& values) const {
    values.load(ExactWeights<WeightCodec, Kept>{weights, kept}, in, group, span);
  }

 private:
  template <class G, int kPart>
  MPT_HD void advance(G group, BlockSpan span, RegisterBlock<Step, kPart>& values) const {
    const AdditiveScales<WeightCodec, G> scales(weights, group, span, in.mean_scale);
    with_ema(step, in.state_update,
             [&](auto ema) { advance_weights<decltype(ema)>(step, scales, values); });
  }
};

}  // namespace mpt
