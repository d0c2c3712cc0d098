// A unit's gradient and moments where they are stored: what a lone lane advances element by element, without
// copies of its own between, which would cost it more than the arithmetic.
#pragma once

#include <utility>

#include "optim/unit_states.h"
#include "precision/upcoming.h"

namespace mpt {

// Elements of one row, stored as T (fp32 or bf16).
template <class T>
struct Stored {
  T* at;
  [[nodiscard]] float get(int64_t k) const { return to_float(at[k]); }
  void set(int64_t k, float x) const { at[k] = from_float<T>(x); }
};

enum class NewStates : uint8_t { kStored, kDropped };

// All moments are stored as T and rounded to nearest; the gradient is a D.
template <class Step, class T, class D>
struct UnitInPlace {
  static constexpr int kStates = int(Step::kStates.size()), kInputs = kStates + Step::kFactors;

  int64_t count;  // elements
  float grad_scale;
  const D* g;
  Stored<T> s[kStates];
  float factor[Step::kFactors == 0 ? 1 : kUnit];
  Upcoming<2> upcoming;  // besides gradient and moments

  UnitInPlace(const UnitStates<kStates>& states, UnitSpan span)
      : count(span.count),
        grad_scale(states.control->grad_scale),
        g(states.gradient.template elements<D>(span)) {
    for (int i = 0; i < kStates; ++i) s[i] = {states.states[i].template elements<T>(span)};
    if constexpr (Step::kFactors == 1) states.factors.load(SerialGroup{}, span, factor);
  }

  // step(k, g, state) for every element, which may update its states. Vectors of one element's states are
  // made by the compiler: bearing `omp simd`, the loop would give every lane a `state` in memory.
  template <NewStates kNew = NewStates::kStored, class F>
  void each(const F& step) const {
    each<kNew>(step, std::make_integer_sequence<int, kStates>{});
  }

 private:
  static constexpr int kAtOnce = Upcoming<1>::kElements;

  // Of the next unit.
  template <class N>
  MPT_ALWAYS_INLINE static void ask_for_next(const N* at) {
    prefetch(at + kUnit, kAtOnce * int64_t(sizeof(N)));
  }

  template <NewStates kNew, class F, int... i>
  void each(const F& step, std::integer_sequence<int, i...>) const {
    const Stored<T> own[] = {s[i]...};
    const D* const gradient = g;
    const float scale = grad_scale;
    const auto advance = [=, this](int64_t k) MPT_ALWAYS_INLINE {
      float state[kInputs] = {own[i].get(k)...};
      if constexpr (Step::kFactors == 1) state[kStates] = factor[k];
      step(k, scale * to_float(gradient[k]), state);
      if constexpr (kNew == NewStates::kStored) (own[i].set(k, state[i]), ...);
    };
    int64_t first = 0;
    // Of a constant length, so that what all elements share is brought into registers once.
    for (; first + kAtOnce <= count; first += kAtOnce) {
      upcoming.fetch(first);
      ask_for_next(gradient + first);
      (ask_for_next(own[i].at + first), ...);
#pragma GCC ivdep
      for (int64_t k = first; k < first + kAtOnce; ++k) advance(k);
    }
#pragma GCC ivdep
    for (int64_t k = first; k < count; ++k) advance(k);
  }
};

}  // namespace mpt
