// Counts the fates of a tensor's updates without making them: the step is computed as update_unit.h does,
// rounded as the codec would store it, and compared with what was there.
#pragma once

#include "optim/survival.h"
#include "optim/update_unit.h"
#include "precision/codecs.h"

namespace mpt {

// One lane's counts over a run of units; also the layout of a row of the table they are summed from.
struct SurvivalCounters {
  int32_t weights[kMagnitudeBuckets];
  int32_t fates[kBranches][kFates][kMagnitudeBuckets];
  int32_t dragged;
  int32_t saturated_blocks;
  double drag_log2;
};

MPT_HD int magnitude_bucket(float w) {
  const int binade = static_cast<int>(bits_of(std::fabs(w)) >> 23) - 127;
  const int bucket =
      binade < kLowestBinade ? 1 : 2 + (min_of(binade, kHighestBinade) - kLowestBinade) / kBinadesPerBucket;
  return w == 0.0f ? 0 : bucket;
}

// The smallest ratio by which neighbouring values of a grid differ, rounded down; 1 where no scale is shared.
MPT_HD float smallest_grid_ratio(const ElementCodec&) { return 1.0f; }
MPT_HD float smallest_grid_ratio(const BlockFp8Codec&) { return 1.0625f; }  // 16 / 15, of 1.875 and 2
MPT_HD float smallest_grid_ratio(const Nvfp4Codec&) { return 1.25f; }       // 4 / 3, of 3 and 4

template <class G, int kPart>
MPT_HD int saturated_blocks(const Nvfp4Codec& codec, G group, UnitSpan span, const float (&x)[kPart]) {
  return codec.saturated_blocks(group, span, x);
}
template <class Codec, class G, int kPart>
MPT_HD int saturated_blocks(const Codec&, G, UnitSpan, const float (&)[kPart]) {
  return 0;
}

// Of one update of w, which would have made it `wanted` and is stored as `stored`.
MPT_HD void count_fate(int32_t (&fates)[kFates][kMagnitudeBuckets], int bucket, float w, float wanted,
                       float stored) {
  const auto add = [&](Fate fate, bool holds) { fates[static_cast<int>(fate)][bucket] += holds ? 1 : 0; };
  add(Fate::kVanished, wanted != w && stored == w);
  add(Fate::kMoved, stored != w);
  add(Fate::kSignChanged, (w < 0.0f && stored > 0.0f) || (w > 0.0f && stored < 0.0f));
  add(Fate::kLeftZero, w == 0.0f && stored != 0.0f);
  add(Fate::kEnteredZero, w != 0.0f && stored == 0.0f);
}

// The weight that one branch alone asks for.
template <class Rule>
MPT_HD float moved_by(const Rule& rule, Branch branch, float w, const typename Rule::Move& move) {
  return rule.moved(w, branch == Branch::kBoth ? move : rule.only(branch, move));
}

template <class Rule, class WeightCodec>
struct SurvivalPiece {
  static constexpr int kStates = int(Rule::kStates.size());
  static constexpr int64_t kUnitsPerPiece = 64;

  Rule rule;
  UnitStates<kStates> states;
  WeightCodec source, target;
  DitherSource dither;
  SurvivalCounters* counters;  // [pieces * lanes]

  template <class G>
  MPT_HD void operator()(G group, int64_t piece) const {
    SurvivalCounters mine{};
    const int64_t end = min_of((piece + 1) * kUnitsPerPiece, states.grid.units());
    for (int64_t unit = piece * kUnitsPerPiece; unit < end; ++unit) count_unit(group, unit, mine);
    counters[piece * G::kLanes + group.lane()] = mine;
  }

 private:
  template <class G>
  MPT_HD void count_unit(G group, int64_t unit, SurvivalCounters& mine) const {
    constexpr int kPart = LanePart<G>::kSize;
    const UnitSpan span = states.grid.span(unit);
    const int size = LanePart<G>(group, span).size;
    const auto random = dither.draw(group, span);
    UnitValues<Rule, kPart> values;
    float w[kPart], wanted[kPart], stored[kPart];
    typename Rule::Move moves[kPart];
    source.load(group, span, w);
    values.load(states, group, span);
    find_moves(values, w, moves);
    for (int k = 0; k < size; ++k) ++mine.weights[magnitude_bucket(w[k])];
    for (int b = 0; b < Rule::kBranches; ++b) {
      for (int k = 0; k < kPart; ++k)
        stored[k] = wanted[k] = moved_by(rule, static_cast<Branch>(b), w[k], moves[k]);
      if (b == 0) mine.saturated_blocks += saturated_blocks(target, group, span, wanted);
      target.round(group, span, stored, random);
      for (int k = 0; k < size; ++k)
        count_fate(mine.fates[b], magnitude_bucket(w[k]), w[k], wanted[k], stored[k]);
      if (b == 0) count_drag(size, w, stored, mine);
    }
  }

  template <int kPart>
  MPT_HD void find_moves(UnitValues<Rule, kPart>& values, const float (&w)[kPart],
                         typename Rule::Move (&moves)[kPart]) const {
    if (states.state_update == StateUpdate::kOnce)
      values.each([&](int k, float g, float* s) { moves[k] = rule.template advance<EmaOnce>(w[k], g, s); });
    else
      values.each([&](int k, float g, float* s) { moves[k] = rule.template advance<EmaPerOp>(w[k], g, s); });
  }

  template <int kPart>
  MPT_HD void count_drag(int size, const float (&w)[kPart], const float (&stored)[kPart],
                         SurvivalCounters& mine) const {
    const float most = smallest_grid_ratio(target);
    for (int k = 0; k < size; ++k) {
      const float ratio = w[k] == 0.0f ? 1.0f : stored[k] / w[k];
      if (ratio == 1.0f || !(ratio < most && ratio * most > 1.0f)) continue;
      ++mine.dragged;
      mine.drag_log2 += std::log2(double(ratio));
    }
  }
};

}  // namespace mpt
