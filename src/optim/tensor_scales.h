// What updates find out about the scales of NVFP4 tensors: their mean, which additive directions are
// multiples of, and the largest weight to come, from which the tensor's own scale follows.
#pragma once

#include "core/float_format.h"
#include "optim/unit_states.h"
#include "precision/codec_nvfp4.h"

namespace mpt {

// sums[row]: over the elements of a row, the scales of their blocks. A scale is a multiple of 2^-9 and at
// most 448, so that FP64 holds the sums of 2^31 blocks exactly, in whatever order they are added.
struct RowScaleSum {
  const uint8_t* scales;
  int64_t stride;
  int64_t cols;  // elements
  double* sums;

  template <class G>
  MPT_HD void operator()(G group, int64_t row) const {
    const uint8_t* const scale = scales + row * stride;
    const int64_t elements = cols;
    const double sum = group.sum((elements + kNvfp4Block - 1) / kNvfp4Block, [=](int64_t block) {
      return double(decode<kE4M3>(scale[block])) *
             double(min_of<int64_t>(kNvfp4Block, elements - block * kNvfp4Block));
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
