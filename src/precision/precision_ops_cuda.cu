// The operations on encoded weights on a CUDA stream: the same bits as on the CPU (no contraction:
// -fmad=false).
#include "device/cuda/cuda_exec.cuh"
#include "precision/precision_ops_on.h"

namespace mpt {
namespace {

std::unique_ptr<PrecisionOps> make(StreamRef stream, const PrecisionOps::Options& options) {
  return std::make_unique<PrecisionOpsOn<CudaExec>>(CudaExec{stream_of(stream)}, options.allocator,
                                                    options.most_rows);
}
const RegisterCudaOps<PrecisionOps> registered{make};

}  // namespace

}  // namespace mpt
