// The operations on encoded weights on a CUDA stream: the same bits as on the CPU (no contraction:
// -fmad=false).
#include "device/cuda/cuda_exec.cuh"
#include "precision/precision_ops_backends.h"
#include "precision/precision_ops_on.h"

namespace mpt {

std::unique_ptr<PrecisionOps> make_cuda_precision_ops(CUstream_st* stream, Allocator& allocator,
                                                      int64_t most_rows) {
  return std::make_unique<PrecisionOpsOn<CudaExec>>(CudaExec{stream}, allocator, most_rows);
}

}  // namespace mpt
