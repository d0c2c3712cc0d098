// Values of an update block during its update: in registers, or in place in memory.
#pragma once

#include <utility>

#include "core/prefetch.h"
#include "optim/update/tensor_inputs.h"
#include "precision/codec.h"

namespace mpt {

// In registers: the lane's part of weights, gradient and states, in FP32. A single object, so the
// compiler knows that nothing overlaps.
template <class Step, int kPart>
struct RegisterBlock {
  static constexpr int kStates = int(Step::kStates.size());
  static constexpr int kInputs = kStates + Step::kFactors;

  float w[kPart];
  float g[kPart];
  float s[kInputs][kPart];

  template <class WeightCodec, class G>
  MPT_HD void load(const WeightCodec& weights, const TensorInputs<kStates>& from, G group,
                   BlockSpan span) {
    weights.load(group, span, w);
    from.gradient.load(group, span, g);
    const float grad_scale = from.control->grad_scale;
#pragma omp simd
    for (int k = 0; k < kPart; ++k) g[k] = grad_scale * g[k];
#pragma unroll
    for (int i = 0; i < kStates; ++i) from.states[i].load(group, span, s[i]);
    if constexpr (Step::kFactors == 1) from.factors.load(group, span, s[kStates]);
  }
  template <class G>
  MPT_HD void store(const TensorInputs<kStates>& to, G group, BlockSpan span) const {
#pragma unroll
    for (int i = 0; i < kStates; ++i)
      to.states[i].store(group, span, s[i], to.dithers[i].draw(group, span));
  }

  // Calls step(k, g, state) for every element; step may update the states. The loop vectorizes only
  // without `omp simd`, which would put a `state` per lane in memory; a GPU unrolls it and keeps
  // everything in registers.
  template <class F>
  MPT_HD void each(const F& step) {
    each(step, std::make_integer_sequence<int, kInputs>{});
  }

 private:
  template <class F, int... i>
  MPT_HD void each(const F& step, std::integer_sequence<int, i...>) {
#pragma unroll
    for (int k = 0; k < kPart; ++k) {
      float state[kInputs] = {s[i][k]...};
      step(k, g[k], state);
      ((s[i][k] = state[i]), ...);
    }
  }
};

// Elements of one row, stored as T (fp32 or bf16).
template <class T>
struct Stored {
  T* at;
  [[nodiscard]] float get(int64_t k) const { return to_float(at[k]); }
  void set(int64_t k, float x) const { at[k] = from_float<T>(x); }
};

enum class NewStates : uint8_t { kStored, kDropped };

// Prefetches the next update block piece by piece while the current one is computed. A block is
// loaded, computed and stored in turn; without prefetching, memory idles during the divisions and
// the processor during the loads.
// For serial lanes only; groups with more lanes overlap with each other.
template <int kMost>
struct BlockPrefetch {
  static constexpr int kElements = 64;  // prefetched by one fetch()

  ElementMemory streams[kMost];
  int count = 0;

  // The next update block follows this one in memory, except for padding between rows.
  MPT_HD void follow(ElementMemory block) {
    streams[count++] = {block.first + kUpdateBlock * block.bits / 8, block.bits};
  }
  MPT_ALWAYS_INLINE MPT_HD void fetch(int64_t first) const {
    for (int i = 0; i < count; ++i)
      prefetch(streams[i].first + first * streams[i].bits / 8, kElements * streams[i].bits / 8);
  }
};

// In place, element by element: for a serial lane, copies would cost more than the arithmetic. All
// moments are stored as T, rounded to nearest; the gradient is stored as D.
template <class Step, class T, class D>
struct InPlaceBlock {
  static constexpr int kStates = int(Step::kStates.size()), kInputs = kStates + Step::kFactors;

  int64_t count;  // elements
  float grad_scale;
  const D* g;
  Stored<T> s[kStates];
  float factor[Step::kFactors == 0 ? 1 : kUpdateBlock];
  BlockPrefetch<2> next_block;  // streams other than gradient and moments

  InPlaceBlock(const TensorInputs<kStates>& in, BlockSpan span)
      : count(span.count),
        grad_scale(in.control->grad_scale),
        g(in.gradient.template elements<D>(span)) {
    for (int i = 0; i < kStates; ++i) s[i] = {in.states[i].template elements<T>(span)};
    if constexpr (Step::kFactors == 1) in.factors.load(SerialGroup{}, span, factor);
  }

  // Calls step(k, g, state) for every element; step may update the states. The compiler vectorizes
  // each state by itself: with `omp simd`, every lane would have a `state` in memory.
  template <NewStates kNew = NewStates::kStored, class F>
  void each(const F& step) const {
    each<kNew>(step, std::make_integer_sequence<int, kStates>{});
  }

 private:
  static constexpr int kAtOnce = BlockPrefetch<1>::kElements;

  // Prefetches the same elements of the next update block.
  template <class N>
  MPT_ALWAYS_INLINE static void prefetch_next(const N* at) {
    prefetch(at + kUpdateBlock, kAtOnce * int64_t(sizeof(N)));
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
    // Constant trip count, so values common to all elements are loaded into registers once.
    for (; first + kAtOnce <= count; first += kAtOnce) {
      next_block.fetch(first);
      prefetch_next(gradient + first);
      (prefetch_next(own[i].at + first), ...);
#pragma GCC ivdep
      for (int64_t k = first; k < first + kAtOnce; ++k) advance(k);
    }
#pragma GCC ivdep
    for (int64_t k = first; k < count; ++k) advance(k);
  }
};

}  // namespace mpt
