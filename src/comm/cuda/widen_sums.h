// Sums that were made in bf16, as fp32.
#pragma once

#include "core/tensor.h"

struct CUstream_st;

namespace mpt {

// On a stream: fp32_to[i] = bf16_from[i], [1, n] each, which do not overlap.
void widen_sums(const Tensor& bf16_from, const Tensor& fp32_to, CUstream_st* stream);

}  // namespace mpt
