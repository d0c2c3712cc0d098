// Softmax cross entropy of one row of logits, and its gradient over the logits themselves.
//
//   loss = log sum_v e^(z_v - m) + m - z_t,   m = max_v z_v;   dz_v = scale (softmax(z)_v - [v = t])
// A target of -1 is not predicted: loss 0, gradient 0.
#pragma once

#include "core/bf16.h"
#include "core/host_device.h"
#include "core/scalar_math.h"

namespace mpt {

inline constexpr int32_t kNoTarget = -1;

template <class T>
struct CrossEntropy {
  T* logits;               // [rows, V]; becomes the gradient where there is a scale
  const int32_t* targets;  // [rows]
  float* losses;           // [rows]
  int64_t cols;            // V
  const float* scale;      // of the gradient: 1 / targets of the step; null: loss only

  template <class G>
  MPT_HD void operator()(G group, int64_t row) const {
    T* z = logits + row * cols;
    const int32_t target = targets[row];
    if (target == kNoTarget) {
      if (scale != nullptr) group.each(cols, [=](int64_t c) { z[c] = from_float<T>(0.0f); });
      if (group.lane() == 0) losses[row] = 0.0f;
      return;
    }
    const float top = group.max(cols, [=](int64_t c) { return to_float(z[c]); });
    const float of_target = to_float(z[target]);  // before any lane writes its gradient
    const float sum = group.sum(cols, [=](int64_t c) { return exp_of(to_float(z[c]) - top); });
    const float loss = std::log(sum) + (top - of_target);
    if (scale != nullptr) {
      const float whole = *scale, factor = whole / sum;
      group.each(cols, [=](int64_t c) {
        const float p = factor * exp_of(to_float(z[c]) - top);
        z[c] = from_float<T>(c == target ? p - whole : p);
      });
    }
    if (group.lane() == 0) losses[row] = loss;
  }
};

// *result: the sum of losses, in FP64.
struct SumLosses {
  const float* losses;
  int64_t count;
  double* result;

  template <class G>
  MPT_HD void operator()(G group, int64_t) const {
    const float* const loss = losses;
    const double sum = group.sum(count, [=](int64_t i) { return double(loss[i]); });
    if (group.lane() == 0) *result = sum;
  }
};

}  // namespace mpt
