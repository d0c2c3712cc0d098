// The optimizers' operations on a CUDA stream: the same bits as on the CPU (no contraction: -fmad=false).
#include "device/cuda/cuda_exec.cuh"
#include "optim/update_ops_backends.h"
#include "optim/update_ops_on.h"

namespace mpt {

std::unique_ptr<UpdateOps> make_cuda_update_ops(CUstream_st* stream) {
  return std::make_unique<UpdateOpsOn<CudaExec>>(CudaExec{stream});
}

}  // namespace mpt
