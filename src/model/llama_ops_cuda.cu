// The LLaMA operations on a CUDA stream: the same formulas as on the CPU.
#include "device/cuda/cuda_exec.cuh"
#include "model/llama_ops_backends.h"
#include "model/llama_ops_on.h"

namespace mpt {

std::unique_ptr<LlamaOps> make_cuda_llama_ops(CUstream_st* stream) {
  return std::make_unique<LlamaOpsOn<CudaExec>>(CudaExec{stream});
}

}  // namespace mpt
