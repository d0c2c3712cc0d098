// Embedding lookup, and its gradient as a gather: each row of the table sums the tokens that used
// it, in order, so no two work items write to the same place and results do not depend on threads
// (docs/numerics.md "Embedding").
#pragma once

#include "core/bf16.h"
#include "core/host_device.h"
#include "core/prefetch.h"

namespace mpt {

// One token: out = table[token].
template <class T>
struct EmbeddingForward {
  const T* table;         // [V, C]
  const int32_t* tokens;  // [N]
  T* out;                 // [N, C]
  int64_t cols;

  template <class G>
  MPT_HD void operator()(G group, int64_t row) const {
    const T* source = table + int64_t{tokens[row]} * cols;
    T* target = out + row * cols;
    group.each(cols, [=](int64_t c) { target[c] = source[c]; });
  }
};

// first[v]: number of uses of the rows before v. Uses are sorted by their token's row.
struct FindFirstUses {
  const int32_t* tokens;  // [N]
  const int32_t* uses;    // [N]
  int64_t count;          // N
  int32_t* first;         // [V + 1]

  MPT_HD void operator()(int64_t v) const {
    int64_t low = 0, high = count;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (tokens[uses[middle]] < v)
        low = middle + 1;
      else
        high = middle;
    }
    first[v] = static_cast<int32_t>(low);
  }
};

// One row of the table. The tokens that used row v are uses[first[v]] .. uses[first[v + 1] - 1].
template <class T, class D>
struct EmbeddingBackward {
  const T* d_out;        // [N, C]
  const int32_t* first;  // [V + 1]
  const int32_t* uses;   // [N]
  D* d_table;            // [V, C]
  int64_t cols;
  float keep;  // 1 to accumulate, 0 to overwrite

  template <class G>
  MPT_HD void operator()(G group, int64_t row) const {
    const EmbeddingBackward own = *this;
    if (first[row] == first[row + 1] && keep != 0.0f) return;
    int64_t whole = 0;
    if constexpr (G::kLanes == 1)
      for (; whole + kAtOnce <= cols; whole += kAtOnce)
        own.template sum_columns<kAtOnce>(row, whole);
    group.each(cols - whole, [=](int64_t c) { own.template sum_columns<1>(row, whole + c); });
  }

 private:
  static constexpr int kAtOnce =
      64;  // columns at a time for a single lane, which prefetches its output

  template <int kCount>
  MPT_HD void sum_columns(int64_t row, int64_t column) const {
    D* const target = d_table + row * cols + column;
    if constexpr (kCount == kAtOnce) prefetch_ahead<kCount, Use::kWrite>(target);
    float sum[kCount];
#pragma omp simd
    for (int k = 0; k < kCount; ++k) sum[k] = keep == 0.0f ? 0.0f : to_float(target[k]);
    for (int32_t i = first[row]; i < first[row + 1]; ++i) {
      const T* const d = d_out + uses[i] * cols + column;
#pragma omp simd
      for (int k = 0; k < kCount; ++k) sum[k] += to_float(d[k]);
    }
#pragma omp simd
    for (int k = 0; k < kCount; ++k) target[k] = from_float<D>(sum[k]);
  }
};

}  // namespace mpt
