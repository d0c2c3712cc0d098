// The operations on FP8 operands of a CUDA stream, for a device that owns one.
#pragma once

#include <memory>

#include "precision/fp8_ops.h"

struct CUstream_st;

namespace mpt {

std::unique_ptr<Fp8Ops> make_cuda_fp8_ops(CUstream_st* stream);

}  // namespace mpt
