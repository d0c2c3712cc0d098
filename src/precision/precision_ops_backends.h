// The operations on encoded weights of each backend; make_precision_ops() picks among them.
#pragma once

#include <memory>

#include "precision/precision_ops.h"

struct CUstream_st;

namespace mpt {

std::unique_ptr<PrecisionOps> make_cpu_precision_ops(Allocator& allocator, int64_t most_rows);
// Enqueued on `stream`. Only in builds with CUDA.
std::unique_ptr<PrecisionOps> make_cuda_precision_ops(CUstream_st* stream, Allocator& allocator,
                                                      int64_t most_rows);

}  // namespace mpt
