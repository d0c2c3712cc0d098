// The optimizers' operations of a CUDA stream, for a device that owns one.
#pragma once

#include <memory>

#include "optim/update_ops.h"

struct CUstream_st;

namespace mpt {

std::unique_ptr<UpdateOps> make_cuda_update_ops(CUstream_st* stream);

}  // namespace mpt
