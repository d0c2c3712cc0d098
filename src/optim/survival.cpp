#include "optim/survival.h"

#include <cmath>

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

}  // namespace mpt
