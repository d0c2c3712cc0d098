// Embedding lookup, and its gradient as a gather: each row of the table sums the tokens that used it, in
// their order, so that no two rows of work write the same place and the result does not depend on threads.
#pragma once

#include "core/bf16.h"
#include "core/host_device.h"

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

// first[v]: how many uses are of rows before v. Uses are sorted by the row that their token names.
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
    const int32_t begin = first[row], end = first[row + 1];
    D* target = d_table + row * cols;
    const T* d = d_out;
    const int32_t* use = uses;
    const float kept = keep;
    const int64_t width = cols;
    if (begin == end && kept != 0.0f) return;
    group.each(cols, [=](int64_t c) {
      float sum = kept == 0.0f ? 0.0f : to_float(target[c]);
      for (int32_t i = begin; i < end; ++i) sum += to_float(d[use[i] * width + c]);
      target[c] = from_float<D>(sum);
    });
  }
};

}  // namespace mpt
