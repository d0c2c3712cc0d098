// Counts the outcomes of a tensor's updates and sums their sizes without applying them: computes
// the step like tensor_update.h, rounds it like the codec, and compares the result with the stored
// weights.
#pragma once

#include "optim/update/tensor_update.h"
#include "optim/update_statistics.h"

namespace mpt {

MPT_HD int magnitude_bucket(float w) {
  const int binade = static_cast<int>(bits_of(std::fabs(w)) >> 23) - 127;
  const int bucket = binade < kLowestBinade
                         ? 1
                         : 2 + (min_of(binade, kHighestBinade) - kLowestBinade) / kBinadesPerBucket;
  return w == 0.0f ? 0 : bucket;
}

template <class Ema, class Step, int kPart, class Scales>
MPT_HD void find_moves(const Step& step, const Scales& scales, RegisterBlock<Step, kPart>& values,
                       typename Step::Move (&moves)[kPart]) {
  values.each([&](int k, float g, float* state) {
    moves[k] = step.template advance<Ema>(values.w[k], g, state, scales[k]);
  });
}

// Counts one update of w to `stored`; `asked`: the update was not zero.
MPT_HD void count_outcome(int32_t (&outcomes)[kOutcomes][kMagnitudeBuckets], float w, bool asked,
                          float stored) {
  const int bucket = magnitude_bucket(w);
  const auto add = [&](UpdateOutcome outcome, bool holds) {
    outcomes[static_cast<int>(outcome)][bucket] += holds ? 1 : 0;
  };
  add(UpdateOutcome::kVanished, asked && stored == w);
  add(UpdateOutcome::kMoved, stored != w);
  add(UpdateOutcome::kSignChanged, (w < 0.0f && stored > 0.0f) || (w > 0.0f && stored < 0.0f));
  add(UpdateOutcome::kLeftZero, w == 0.0f && stored != 0.0f);
  add(UpdateOutcome::kEnteredZero, w != 0.0f && stored == 0.0f);
}

// Counts a weight that changed by a factor smaller than any step of its grid.
MPT_HD void count_drag(float w, float stored, float smallest_ratio, UpdateCounters& counters) {
  const float ratio = w == 0.0f ? 1.0f : stored / w;
  if (ratio == 1.0f || !(ratio < smallest_ratio && ratio * smallest_ratio > 1.0f)) return;
  ++counters.dragged;
  counters.drag_log2 += std::log2(double(ratio));
}

MPT_HD void sum_effect(double asked, double effective, EffectSums& sums) {
  sums.squares += effective * effective;
  sums.products += asked * effective;
}

// Update of one weight by one branch: the change asked for, and the weight stored after the whole
// update. Differences of FP32 numbers within 29 binades are exact in FP64.
struct SummedUpdate {
  double w, asked, stored;
};
MPT_HD void sum_update(int branch, const SummedUpdate& update, UpdateSums& sums) {
  sums.asked_squares[branch] += update.asked * update.asked;
  if (branch != 0) return;
  sums.weight_squares += update.w * update.w;
  sum_effect(update.asked, update.stored - update.w, sums.stored);
}

// Weights rounded to their format.
template <class G, class Step, class WeightCodec>
MPT_COLD MPT_HD void count_updates(const TensorUpdate<Step, WeightCodec>& update, G group,
                                   BlockSpan span, UpdateCounters& mine) {
  constexpr int kPart = LanePart<G>::kSize;
  const Step& step = update.step;
  const WeightCodec& weights = update.weights;
  const int size = LanePart<G>(group, span).size;
  const auto random = update.dither.draw(group, span);
  RegisterBlock<Step, kPart> values;
  typename Step::Move moves[kPart];
  const AdditiveScales<WeightCodec, G> scales(weights, group, span, update.in.mean_scale);
  values.load(weights, update.in, group, span);
  with_ema(step, update.in.state_update,
           [&](auto ema) { find_moves<decltype(ema)>(step, scales, values, moves); });
  for (int k = 0; k < size; ++k) ++mine.weights[magnitude_bucket(values.w[k])];
  for (int b = 0; b < Step::kBranches; ++b) {
    float wanted[kPart], stored[kPart];
    for (int k = 0; k < kPart; ++k)
      stored[k] = wanted[k] = step.moved(values.w[k], step.only(static_cast<Branch>(b), moves[k]));
    if (b == 0) mine.saturated_blocks += weights.saturated_blocks(group, span, wanted);
    weights.round(group, span, stored, random);
    for (int k = 0; k < size; ++k) {
      count_outcome(mine.outcomes[b], values.w[k], wanted[k] != values.w[k], stored[k]);
      if (b == 0) count_drag(values.w[k], stored[k], WeightCodec::kSmallestRatio, mine);
      const double w = values.w[k];
      sum_update(b, {.w = w, .asked = wanted[k] - w, .stored = stored[k]}, mine.sums);
    }
  }
}

template <class Ema, class Step, int kPart>
MPT_HD void find_next(const Step& step, Branch branch, const float (&c)[kPart],
                      RegisterBlock<Step, kPart>& values, Compensated (&next)[kPart]) {
  values.each([&](int k, float g, float* state) {
    next[k] = step.template next_by<Ema>(branch, values.w[k], c[k], g, state);
  });
}

// The residual keeps what the stored weight lost, so the change asked for is that of their sum.
MPT_HD void sum_compensated(int branch, const Compensated& now, const Compensated& next,
                            UpdateSums& sums) {
  const double whole = double(now.w) + double(now.c);
  const double asked = double(next.w) + double(next.c) - whole;
  sum_update(branch, {.w = now.w, .asked = asked, .stored = next.w}, sums);
  const double stored = double(next.w) + double(rounded_to<bf16>(next.c));
  if (branch == 0) sum_effect(asked, stored - whole, sums.with_residuals);
}

// Compensated weights: the residual keeps the update, although the stored weight is unchanged.
template <class G, class Step>
MPT_COLD MPT_HD void count_updates(const CompensatedUpdate<Step>& update, G group, BlockSpan span,
                                   UpdateCounters& mine) {
  constexpr int kPart = LanePart<G>::kSize;
  const Step& step = update.step;
  const int size = LanePart<G>(group, span).size;
  float c[kPart];
  update.residuals.load(group, span, c);
  for (int b = 0; b < Step::kBranches; ++b) {
    RegisterBlock<Step, kPart> values;
    Compensated next[kPart];
    values.load(update.weights, update.in, group, span);
    with_ema(step, update.in.state_update, [&](auto ema) {
      find_next<decltype(ema)>(step, static_cast<Branch>(b), c, values, next);
    });
    for (int k = 0; k < size; ++k) {
      const float w = values.w[k];
      if (b == 0) ++mine.weights[magnitude_bucket(w)];
      count_outcome(mine.outcomes[b], w, next[k].w != w || next[k].c != c[k], next[k].w);
      sum_compensated(b, {w, c[k]}, next[k], mine.sums);
    }
  }
}

// Weights with residuals: counts outcomes of the stored weights.
template <class G, class Step, class WeightCodec, class Kept>
MPT_COLD MPT_HD void count_updates(const KeptUpdate<Step, WeightCodec, Kept>& update, G group,
                                   BlockSpan span, UpdateCounters& mine) {
  constexpr int kPart = LanePart<G>::kSize;
  const Step& step = update.step;
  const WeightCodec& weights = update.weights;
  const int size = LanePart<G>(group, span).size;
  const Dither<kPart> nearest = DitherSource{}.draw(group, span);
  RegisterBlock<Step, kPart> values;
  typename Step::Move moves[kPart];
  float before[kPart];
  const AdditiveScales<WeightCodec, G> scales(weights, group, span, update.in.mean_scale);
  weights.load(group, span, before);
  update.load(group, span, values);
  with_ema(step, update.in.state_update,
           [&](auto ema) { find_moves<decltype(ema)>(step, scales, values, moves); });
  for (int k = 0; k < size; ++k) ++mine.weights[magnitude_bucket(before[k])];
  for (int b = 0; b < Step::kBranches; ++b) {
    float wanted[kPart], stored[kPart];
    typename Kept::Code codes[kPart];
    for (int k = 0; k < kPart; ++k) {
      wanted[k] = step.moved(values.w[k], step.only(static_cast<Branch>(b), moves[k]));
      Kept::split(wanted[k], stored[k], codes[k]);
    }
    if (b == 0) mine.saturated_blocks += weights.saturated_blocks(group, span, stored);
    weights.round(group, span, stored, nearest);
    for (int k = 0; k < size; ++k) {
      count_outcome(mine.outcomes[b], before[k], wanted[k] != values.w[k], stored[k]);
      if (b == 0) count_drag(before[k], stored[k], WeightCodec::kSmallestRatio, mine);
      const double exact = values.w[k], asked = wanted[k] - exact;
      sum_update(b, {.w = before[k], .asked = asked, .stored = stored[k]}, mine.sums);
      if (b == 0)
        sum_effect(asked, Kept::exact(stored[k], codes[k]) - exact, mine.sums.with_residuals);
    }
  }
}

// Each lane counts over its sequence of update blocks of the tensor that Update updates.
template <class Update>
struct CountUpdates {
  Update update;
  int64_t first, end;        // update blocks
  UpdateCounters* counters;  // [spans * lanes]

  template <class G>
  MPT_COLD MPT_HD void operator()(G group, int64_t span) const {
    UpdateCounters mine{};
    const int64_t begin = first + span * kCountedBlocks;
    const int64_t stop = min_of(begin + kCountedBlocks, end);
    for (int64_t u = begin; u < stop; ++u)
      count_updates(update, group, update.in.grid.span(u), mine);
    counters[span * G::kLanes + group.lane()] = mine;
  }
};

}  // namespace mpt
