// The operations on FP8 operands of each backend; make_fp8_ops() picks among them.
#pragma once

#include <memory>

#include "precision/fp8_ops.h"

struct CUstream_st;

namespace mpt {

std::unique_ptr<Fp8Ops> make_cpu_fp8_ops();
// Enqueued on `stream`. Only in builds with CUDA.
std::unique_ptr<Fp8Ops> make_cuda_fp8_ops(CUstream_st* stream);

}  // namespace mpt
