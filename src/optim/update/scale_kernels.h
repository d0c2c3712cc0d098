// Kernels for a tensor's scales: the mean block scale, which additive directions follow, and the
// maximum of the new weights, which determines the tensor's own scale.
#pragma once

#include <cstdint>

#include "core/blocks.h"
#include "core/scalar_math.h"
#include "optim/update/tensor_inputs.h"

namespace mpt {

// sums[row]: block scales summed over the elements of a row; exact in FP64, in any order.
template <class Codec>
struct RowScaleSum {
  static constexpr int64_t kBlock = Codec::kBlock;

  Codec codec;
  int64_t cols;  // elements
  double* sums;

  template <class G>
  MPT_HD void operator()(G group, int64_t row) const {
    const Codec weights = codec;
    const int64_t elements = cols;
    const double sum = group.sum((elements + kBlock - 1) / kBlock, [=](int64_t block) {
      return double(weights.block_scale(row, block)) *
             double(min_of<int64_t>(kBlock, elements - block * kBlock));
    });
    if (group.lane() == 0) sums[row] = sum;
  }
};
struct MeanScale {
  const double* sums;
  int64_t rows, elements;
  float* mean;

  template <class G>
  MPT_HD void operator()(G group, int64_t) const {
    const double* const of_row = sums;
    const double sum = group.sum(rows, [=](int64_t i) { return of_row[i]; });
    if (group.lane() == 0) *mean = float(sum / double(elements));
  }
};

template <class Codec>
struct CopyWeights {
  BlockGrid grid;
  Codec codec;
  int64_t first;  // update block
  KeptCodes<float> to;

  template <class G>
  MPT_HD void operator()(G group, int64_t i) const {
    const BlockSpan span = grid.span(first + i);
    float w[LanePart<G>::kSize];
    codec.load(group, span, w);
    to.store(group, span, w);
  }
};

struct ClearMaximum {
  float* maxima;

  MPT_HD void operator()(int64_t i) const { maxima[i] = 0.0f; }
};

struct TakeMaximum {
  const float* maximum;
  const StepControl* control;
  float* scale;

  MPT_HD void operator()(int64_t) const {
    if (control->proceed != 0) *scale = *maximum;
  }
};

}  // namespace mpt
