// OptimizerOps on a CUDA stream, bit-identical to the CPU (no contraction: -fmad=false).
#include "device/cuda/cuda_exec.cuh"
#include "optim/update/optimizer_ops_on.h"

namespace mpt {
namespace {

std::unique_ptr<OptimizerOps> make(StreamRef stream, const OptimizerOps::Options&) {
  return std::make_unique<OptimizerOpsOn<CudaExec>>(CudaExec{stream_of(stream)});
}
const RegisterCudaOps<OptimizerOps> registered{make};

}  // namespace

}  // namespace mpt
