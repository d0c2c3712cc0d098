// Memory that the next update block will read, asked for piece by piece while this one computes. An update
// block is loaded, computed and stored in turn: otherwise memory rests while its processor divides, and the
// processor while it loads.
#pragma once

#include "core/prefetch.h"
#include "precision/codec.h"

namespace mpt {

// Of update blocks that one lane works on alone; with more of them other groups compute meanwhile.
template <int kMost>
struct Upcoming {
  static constexpr int kElements = 64;  // that fetch() asks for

  ElementMemory streams[kMost];
  int count = 0;

  // What follows a whole update block in memory is the next one, but for the padding between rows.
  MPT_HD void follow(ElementMemory block) {
    streams[count++] = {block.first + kUpdateBlock * block.bits / 8, block.bits};
  }
  MPT_ALWAYS_INLINE MPT_HD void fetch(int64_t first) const {
    for (int i = 0; i < count; ++i)
      prefetch(streams[i].first + first * streams[i].bits / 8, kElements * streams[i].bits / 8);
  }
};

}  // namespace mpt
