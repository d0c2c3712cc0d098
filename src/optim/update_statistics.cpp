#include "optim/update_statistics.h"

#include <cmath>
#include <numeric>
#include <span>
#include <type_traits>

#include "ranks/communicator.h"

namespace mpt {

std::vector<double> bucket_edges() {
  std::vector<double> edges{0.0};
  for (int binade = kLowestBinade; binade <= kHighestBinade; binade += kBinadesPerBucket)
    edges.push_back(std::exp2(binade));
  return edges;
}

namespace {

void add_effect(const EffectSums& sums, EffectSums& to) {
  to.squares += sums.squares;
  to.products += sums.products;
}

int64_t total(const std::array<int64_t, kMagnitudeBuckets>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

}  // namespace

void add_sums(const UpdateSums& sums, UpdateSums& to) {
  to.weight_squares += sums.weight_squares;
  for (size_t branch = 0; branch < size_t(kBranches); ++branch)
    to.asked_squares[branch] += sums.asked_squares[branch];
  add_effect(sums.stored, to.stored);
  add_effect(sums.with_residuals, to.with_residuals);
}

int64_t UpdateStatistics::elements() const { return total(weights); }

double UpdateStatistics::flipped() const {
  const int64_t moved = total(outcomes[size_t(Branch::kBoth)][size_t(UpdateOutcome::kMoved)]);
  return double(moved - dragged) / double(elements());
}

double UpdateStatistics::weight_rms() const {
  return std::sqrt(sums.weight_squares / double(elements()));
}
double UpdateStatistics::asked_rms(Branch branch) const {
  return std::sqrt(sums.asked_squares[size_t(branch)] / double(elements()));
}
double UpdateStatistics::rms(const EffectSums& effect) const {
  return std::sqrt(effect.squares / double(elements()));
}

std::optional<double> UpdateStatistics::edq_ratio(const EffectSums& effect) const {
  const double asked = sums.asked_squares[size_t(Branch::kBoth)];
  if (asked == 0.0) return std::nullopt;
  return effect.products / asked;
}

void add_counters(const UpdateCounters& counters, UpdateStatistics& sum) {
  for (size_t bucket = 0; bucket < size_t(kMagnitudeBuckets); ++bucket) {
    sum.weights[bucket] += counters.weights[bucket];
    for (size_t branch = 0; branch < size_t(kBranches); ++branch)
      for (size_t outcome = 0; outcome < size_t(kOutcomes); ++outcome)
        sum.outcomes[branch][outcome][bucket] += counters.outcomes[branch][outcome][bucket];
  }
  sum.dragged += counters.dragged;
  sum.drag_log2 += counters.drag_log2;
  sum.saturated_blocks += counters.saturated_blocks;
  add_sums(counters.sums, sum.sums);
}

namespace {

// The summable part of UpdateStatistics, in the form exchanged between ranks.
struct Counts {
  decltype(UpdateStatistics::weights) weights;
  decltype(UpdateStatistics::outcomes) outcomes;
  int64_t dragged, saturated_blocks;
  double drag_log2;
  UpdateSums sums;
};
static_assert(std::is_trivially_copyable_v<Counts>);

Counts counts_of(const UpdateStatistics& s) {
  return {s.weights, s.outcomes, s.dragged, s.saturated_blocks, s.drag_log2, s.sums};
}

void add(const Counts& counts, UpdateStatistics& sum) {
  for (size_t bucket = 0; bucket < size_t(kMagnitudeBuckets); ++bucket) {
    sum.weights[bucket] += counts.weights[bucket];
    for (size_t branch = 0; branch < size_t(kBranches); ++branch)
      for (size_t outcome = 0; outcome < size_t(kOutcomes); ++outcome)
        sum.outcomes[branch][outcome][bucket] += counts.outcomes[branch][outcome][bucket];
  }
  sum.dragged += counts.dragged;
  sum.saturated_blocks += counts.saturated_blocks;
  sum.drag_log2 += counts.drag_log2;
  add_sums(counts.sums, sum.sums);
}

}  // namespace

void sum_over_ranks(std::vector<UpdateStatistics>& statistics, Communicator& ranks) {
  if (ranks.is_single()) return;
  std::vector<Counts> mine, all(statistics.size() * size_t(ranks.size()));
  for (const UpdateStatistics& of_tensor : statistics) mine.push_back(counts_of(of_tensor));
  ranks.gather_host(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  for (size_t i = 0; i < statistics.size(); ++i) {
    UpdateStatistics sum{.name = statistics[i].name,
                         .branches = statistics[i].branches,
                         .has_residuals = statistics[i].has_residuals};
    for (size_t k = i; k < all.size(); k += statistics.size()) add(all[k], sum);
    statistics[i] = std::move(sum);
  }
}

}  // namespace mpt
