// The optimizers' operations on a CUDA stream: the same bits as on the CPU (no contraction: -fmad=false).
#include "device/cuda/cuda_exec.cuh"
#include "optim/update_ops_on.h"

namespace mpt {
namespace {

std::unique_ptr<UpdateOps> make(StreamRef stream, const UpdateOps::Options&) {
  return std::make_unique<UpdateOpsOn<CudaExec>>(CudaExec{stream_of(stream)});
}
const RegisterCudaOps<UpdateOps> registered{make};

}  // namespace

}  // namespace mpt
