// The optimizers' operations of each backend; make_update_ops() picks among them.
#pragma once

#include <memory>

#include "optim/update_ops.h"

struct CUstream_st;

namespace mpt {

std::unique_ptr<UpdateOps> make_cpu_update_ops();
// Enqueued on `stream`. Only in builds with CUDA.
std::unique_ptr<UpdateOps> make_cuda_update_ops(CUstream_st* stream);

}  // namespace mpt
