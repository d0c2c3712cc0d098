#include "optim/survival.h"

#include <cmath>

namespace mpt {

std::vector<double> bucket_edges() {
  std::vector<double> edges{0.0};
  for (int binade = kLowestBinade; binade <= kHighestBinade; binade += kBinadesPerBucket)
    edges.push_back(std::exp2(binade));
  return edges;
}

}  // namespace mpt
