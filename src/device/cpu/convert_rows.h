// Row-wise conversion between matrices of FP32 and of narrower types on the CPU, by all threads.
#pragma once

#include "core/tensor.h"

namespace mpt {

// From bf16, e4m3 or e5m2: exact.
void widen_rows(const Tensor& source, const Tensor& fp32_target);
void narrow_rows(const Tensor& fp32_source, const Tensor& bf16_target);  // nearest, ties to even

}  // namespace mpt
