// The memory of the row after the one that is computed, asked for piece by piece: row formulas that do little
// more than read and write are bounded by how many lines a processor has under way, and its own prediction
// ends with every page and knows nothing of what will be written.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/prefetch.h"
#include "core/group.h"

namespace mpt {

template <size_t kStreams>
class NextRow {
 public:
  explicit NextRow(const std::array<RowMemory, kStreams>& streams) : streams_(streams) {}
  // A part of it, `part` of `whole`; in all, asked for as often as that, the row once.
  MPT_ALWAYS_INLINE void ask(int64_t part, int64_t whole) {
    for (RowMemory& stream : streams_) {
      const int64_t bytes = std::min(stream.left, kCacheLine * cache_lines(stream.bytes * part / whole));
      prefetch(stream.first, bytes);
      stream.first += bytes;
      stream.left -= bytes;
    }
  }

 private:
  std::array<RowMemory, kStreams> streams_;
};

// The CPU's group, which asks for the next row while it works through one.
template <size_t kStreams>
class RowGroup : public SerialGroup {
 public:
  // next outlives this.
  explicit RowGroup(NextRow<kStreams>& next) : next_(&next) {}

  template <class F>
  void each(int64_t n, const F& f) const {
    constexpr int64_t kTogether = 128;
    for (int64_t first = 0; first < n; first += kTogether) {
      const int64_t end = std::min(first + kTogether, n);
      next_->ask(end - first, n);
#pragma omp simd
      for (int64_t i = first; i < end; ++i) f(i);
    }
  }

 private:
  NextRow<kStreams>* next_;
};

}  // namespace mpt
