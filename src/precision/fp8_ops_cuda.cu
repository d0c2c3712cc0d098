// The operations on FP8 operands on a CUDA stream: the same bits as on the CPU.
#include "device/cuda/cuda_exec.cuh"
#include "precision/fp8_ops_backends.h"
#include "precision/fp8_ops_on.h"

namespace mpt {

std::unique_ptr<Fp8Ops> make_cuda_fp8_ops(CUstream_st* stream) {
  return std::make_unique<Fp8OpsOn<CudaExec>>(CudaExec{stream});
}

}  // namespace mpt
