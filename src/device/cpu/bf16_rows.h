// Row-wise conversion between BF16 and FP32 matrices on the CPU, by all threads.
#pragma once

#include "core/tensor.h"

namespace mpt {

void widen_rows(const Tensor& bf16_source, const Tensor& fp32_target);
void narrow_rows(const Tensor& fp32_source, const Tensor& bf16_target);  // nearest, ties to even

}  // namespace mpt
