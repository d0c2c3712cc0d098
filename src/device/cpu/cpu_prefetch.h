// Prefetching in the CPU backend: the next row of a row formula, and a GEMM's next operands.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/group.h"
#include "core/prefetch.h"
#include "core/tensor.h"

namespace mpt {

// Prefetches the next row in pieces while the current one is computed. Row formulas that do little
// more than read and write are bound by the number of cache lines in flight, and the hardware
// prefetcher stops at page boundaries and does not anticipate writes.
template <size_t kStreams>
class RowPrefetch {
 public:
  explicit RowPrefetch(const std::array<RowMemory, kStreams>& streams) : streams_(streams) {}
  // Prefetches the fraction part / whole of the row. Calls whose parts add up to `whole` cover the
  // row once.
  MPT_ALWAYS_INLINE void ask(int64_t part, int64_t whole) {
    for (RowMemory& stream : streams_) {
      const int64_t bytes =
          std::min(stream.left, kCacheLine * cache_lines(stream.bytes * part / whole));
      prefetch(stream.first, bytes);
      stream.first += bytes;
      stream.left -= bytes;
    }
  }

 private:
  std::array<RowMemory, kStreams> streams_;
};

// The CPU's group that prefetches the next row while processing one.
template <size_t kStreams>
class RowGroup : public SerialGroup {
 public:
  // `next` must outlive this object.
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

// Prefetches matrices that will be read soon, one cache line at a time during other work: all lines
// at once would evict from L1 what is needed now.
class PanelPrefetch {
 public:
  static constexpr int kMostBlocks = 2;

  // Adds a matrix that will be read row by row. At most kMostBlocks; they are prefetched in the
  // order of these calls.
  void follow(const Tensor& block);
  [[nodiscard]] int64_t lines() const;  // over all blocks
  // Writes the addresses of up to `count` next lines to `lines`; returns the end of the output.
  const std::byte** take(int64_t count, const std::byte** lines);

 private:
  struct Rows {
    const std::byte* next = nullptr;  // start of the next row
    int64_t count = 0, stride = 0;    // rows not started; bytes between rows
    int64_t lines = 0;                // per row
  };

  std::array<Rows, kMostBlocks> blocks_;
  int count_ = 0, block_ = 0;
  const std::byte* line_ = nullptr;
  int64_t lines_of_row_ = 0;  // remaining in the current row
};

}  // namespace mpt
