// Softmax cross entropy of one row of logits; the gradient overwrites the logits.
//
//   loss = log sum_v e^(z_v - m) + m - z_t,   m = max_v z_v
//   dz_v = scale ((1 + 2 z_loss lse) softmax(z)_v - [v = t]),   lse = log sum_v e^(z_v - m) + m
// The loss excludes z_loss lse^2, but dz_v includes its gradient. A target of kIgnoreTarget is
// ignored: loss 0, gradient 0. Order and rounding: docs/numerics.md "Cross-entropy".
#pragma once

#include <array>
#include <type_traits>

#include "core/bf16.h"
#include "core/group.h"
#include "core/host_device.h"
#include "core/softmax_exp.h"
#include "core/tensor.h"

namespace mpt {

// e^(z - top), z <= top. The GPU uses exp2: the extra rounding of (z - top) log2 e changes the term
// by a relative |z - top| 2^-24, at most 0.4 * 2^-24 of the sum, which includes the top's term.
MPT_HD float softmax_term(float z, float top) {
#ifdef MPT_ON_GPU
  constexpr float kLog2e = 1.44269504088896341f;
  return std::exp2((z - top) * kLog2e);
#else
  return softmax_exp(z - top);
#endif
}

// Loss from the sum of the row's terms.
MPT_HD float cross_entropy_loss(float sum, float top, float of_target) {
  return std::log(sum) + (top - of_target);
}

// Factor on a row's softmax terms in the gradient.
MPT_HD float softmax_factor(float sum, float top, float scale, float z_loss) {
  const float factor = scale / sum;
  return z_loss == 0.0f ? factor : factor * (1.0f + 2.0f * z_loss * (std::log(sum) + top));
}

struct CrossEntropyGradient {
  float top, factor, scale;  // factor: softmax_factor()
  int32_t target;

  // Index is int32_t if narrow comparisons are cheaper.
  template <class Index>
  MPT_HD float operator()(float z, Index c) const {
    return of_term(softmax_term(z, top), c);
  }
  template <class Index>
  MPT_HD float of_term(float term, Index c) const {
    const float p = factor * term;
    return c == Index(target) ? p - scale : p;
  }
};

template <class T>
struct CrossEntropy {
  T* logits;               // [rows, V]; overwritten by the gradient if scale is set
  const int32_t* targets;  // [rows]
  float* losses;           // [rows]
  int64_t cols;            // V
  const float* scale;      // gradient scale: 1 / targets of the step; null: loss only
  float z_loss;

  [[nodiscard]] std::array<RowMemory, 1> memory(int64_t row) const {
    return {RowMemory::of(logits + row * cols, cols)};
  }

  template <class G>
  MPT_HD void operator()(G group, int64_t row) const {
    T* z = logits + row * cols;
    const int32_t target = targets[row];
    if (target == kIgnoreTarget) {
      if (scale != nullptr) group.each(cols, [=](int64_t c) { z[c] = from_float<T>(0.0f); });
      if (group.lane() == 0) losses[row] = 0.0f;
      return;
    }
    const float top = group.max(cols, [=](int64_t c) { return to_float(z[c]); });
    const float of_target = to_float(z[target]);  // read before any lane writes its gradient
    const auto term = [=](int64_t c) { return softmax_term(to_float(z[c]), top); };
    // A single lane with FP32 logits stores the terms for the gradient.
    constexpr bool kKeeps = G::kLanes == 1 && std::is_same_v<T, float>;
    float sum;
    if (kKeeps && scale != nullptr)
      sum = group.sum(cols, [=](int64_t c) {
        const float x = term(c);
        z[c] = from_float<T>(x);
        return x;
      });
    else
      sum = group.sum(cols, term);
    if (scale != nullptr) {
      const CrossEntropyGradient gradient{top, softmax_factor(sum, top, *scale, z_loss), *scale,
                                          target};
      group.each(cols, [=](int64_t c) {
        const float x = to_float(z[c]);
        z[c] = from_float<T>(kKeeps ? gradient.of_term(x, c) : gradient(x, c));
      });
    }
    if (group.lane() == 0) losses[row] = cross_entropy_loss(sum, top, of_target);
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
