#include "optim/survival.h"

#include <cmath>
#include <span>
#include <type_traits>

#include "comm/communicator.h"

namespace mpt {

std::vector<double> bucket_edges() {
  std::vector<double> edges{0.0};
  for (int binade = kLowestBinade; binade <= kHighestBinade; binade += kBinadesPerBucket)
    edges.push_back(std::exp2(binade));
  return edges;
}

void add_counters(const SurvivalCounters& counters, Survival& sum) {
  for (size_t bucket = 0; bucket < size_t(kMagnitudeBuckets); ++bucket) {
    sum.weights[bucket] += counters.weights[bucket];
    for (size_t branch = 0; branch < size_t(kBranches); ++branch)
      for (size_t fate = 0; fate < size_t(kFates); ++fate)
        sum.fates[branch][fate][bucket] += counters.fates[branch][fate][bucket];
  }
  sum.dragged += counters.dragged;
  sum.drag_log2 += counters.drag_log2;
  sum.saturated_blocks += counters.saturated_blocks;
}

namespace {

// What is added of a Survival, as it goes from rank to rank.
struct Counts {
  decltype(Survival::weights) weights;
  decltype(Survival::fates) fates;
  int64_t dragged, saturated_blocks;
  double drag_log2;
};
static_assert(std::is_trivially_copyable_v<Counts>);

Counts counts_of(const Survival& s) {
  return {s.weights, s.fates, s.dragged, s.saturated_blocks, s.drag_log2};
}

void add(const Counts& counts, Survival& sum) {
  for (size_t bucket = 0; bucket < size_t(kMagnitudeBuckets); ++bucket) {
    sum.weights[bucket] += counts.weights[bucket];
    for (size_t branch = 0; branch < size_t(kBranches); ++branch)
      for (size_t fate = 0; fate < size_t(kFates); ++fate)
        sum.fates[branch][fate][bucket] += counts.fates[branch][fate][bucket];
  }
  sum.dragged += counts.dragged;
  sum.saturated_blocks += counts.saturated_blocks;
  sum.drag_log2 += counts.drag_log2;
}

}  // namespace

void sum_over_ranks(std::vector<Survival>& survivals, Communicator& ranks) {
  if (ranks.is_single()) return;
  std::vector<Counts> mine, all(survivals.size() * size_t(ranks.size()));
  for (const Survival& survival : survivals) mine.push_back(counts_of(survival));
  ranks.gather_host(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  for (size_t i = 0; i < survivals.size(); ++i) {
    Survival sum{.name = survivals[i].name, .branches = survivals[i].branches};
    for (size_t k = i; k < all.size(); k += survivals.size()) add(all[k], sum);
    survivals[i] = std::move(sum);
  }
}

}  // namespace mpt
