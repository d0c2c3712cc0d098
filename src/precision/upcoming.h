// Prefetches the next update block piece by piece while the current one is computed. A block is
// loaded, computed and stored in turn, so without this memory idles during the divisions and the
// processor during the loads.
#pragma once

#include "core/prefetch.h"
#include "precision/codec.h"

namespace mpt {

// For serial lanes only; groups of more lanes overlap with each other.
template <int kMost>
struct Upcoming {
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

}  // namespace mpt
