// The operations on encoded weights of a CUDA stream, for a device that owns one.
#pragma once

#include <memory>

#include "precision/precision_ops.h"

struct CUstream_st;

namespace mpt {

std::unique_ptr<PrecisionOps> make_cuda_precision_ops(CUstream_st* stream, Allocator& allocator,
                                                      int64_t most_rows);

}  // namespace mpt
