// Second pass of a maximum over a tensor: reduces the maxima of its rows or update blocks.
#pragma once

#include <cstdint>

#include "core/host_device.h"

namespace mpt {

// *result = max of values[0, count), computed by one group.
struct LargestOf {
  const float* values;
  int64_t count;
  float* result;

  template <class G>
  MPT_HD void operator()(G group, int64_t) const {
    const float* const x = values;
    const float largest = group.max(count, [=](int64_t i) { return x[i]; });
    if (group.lane() == 0) *result = largest;
  }
};

}  // namespace mpt
