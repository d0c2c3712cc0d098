// The passes over the units of tensors, by type of unit: most of what the optimizers' operations are made of.
// A backend may compile them apart, type by type.
#pragma once

#include "device/exec.h"
#include "optim/survival_unit.h"
#include "optim/update_table.h"
#include "precision/unit_range.h"

namespace mpt {

// maxima[i]: max |w'| of unit first + i that the tensor's update would make.
template <class Unit>
struct NextMaxima {
  const Unit* tensor;
  int64_t first;
  float* maxima;

  template <class G>
  MPT_HD void operator()(G group, int64_t i) const {
    const float most = tensor->next_maximum(group, first + i);
    if (group.lane() == 0) maxima[i] = most;
  }
};

template <class Rule, class Codec>
RoundedSurvival<Rule, Codec> survival_of(const UpdateUnit<Rule, Codec>& unit) {
  return {unit.rule, unit.states, unit.weights, unit.dither};
}
template <class Step>
CompensatedSurvival<Step> survival_of(const KahanUnit<Step>& unit) {
  return {unit.step, unit.states, unit.weights, unit.residuals};
}

template <Exec E, class Unit>
struct UnitPasses {
  static void update(const E& exec, int64_t units, const ForEachTensor<Unit>& each);
  static void find_maxima(const E& exec, int64_t units, const NextMaxima<Unit>& each);
  static void survey(const E& exec, UnitRange range, const Unit& unit, SurvivalCounters* counters);
};

// Not in the class: what is inline there is compiled again wherever it is used.
template <Exec E, class Unit>
void UnitPasses<E, Unit>::update(const E& exec, int64_t units, const ForEachTensor<Unit>& each) {
  exec.units(units, each);
}
template <Exec E, class Unit>
void UnitPasses<E, Unit>::find_maxima(const E& exec, int64_t units, const NextMaxima<Unit>& each) {
  if constexpr (Unit::kFindsMaximum) exec.units(units, each);
}
template <Exec E, class Unit>
void UnitPasses<E, Unit>::survey(const E& exec, UnitRange range, const Unit& unit,
                                 SurvivalCounters* counters) {
  using Counting = decltype(survival_of(unit));
  exec.rows(survival_pieces(range.count),
            SurvivalPiece<Counting>{survival_of(unit), range.first, range.end(), counters});
}

}  // namespace mpt
