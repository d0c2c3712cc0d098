// Prefetches of the CPU backend: the next row of a row formula, and a GEMM's next operands.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/group.h"
#include "core/prefetch.h"
#include "core/tensor.h"

namespace mpt {

// The row after the one that is computed, prefetched bit by bit. Row formulas that do little more than read
// and write are bound by how many cache lines are in flight, and the hardware prefetcher stops at every page
// and does not see what will be written.
template <size_t kStreams>
class RowPrefetch {
 public:
  explicit RowPrefetch(const std::array<RowMemory, kStreams>& streams) : streams_(streams) {}
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
  explicit RowGroup(RowPrefetch<kStreams>& next) : next_(&next) {}

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
  RowPrefetch<kStreams>* next_;
};

// Matrices that will be read soon, prefetched a cache line at a time while something else is computed: all
// lines at once would evict from L1 what is needed now.
class PanelPrefetch {
 public:
  static constexpr int kMostBlocks = 2;

  // A matrix that will be read, rows one after the other. kMostBlocks of them, in the order of these calls.
  void follow(const Tensor& block);
  [[nodiscard]] int64_t lines() const;  // of all blocks
  // The next `count` lines, or what there is, into `lines`; returns where they end.
  const std::byte** take(int64_t count, const std::byte** lines);

 private:
  struct Rows {
    const std::byte* next = nullptr;  // row
    int64_t count = 0, stride = 0;    // of those not begun; bytes
    int64_t lines = 0;                // of a row
  };

  std::array<Rows, kMostBlocks> blocks_;
  int count_ = 0, block_ = 0;
  const std::byte* line_ = nullptr;
  int64_t lines_of_row_ = 0;  // that are left
};

}  // namespace mpt
