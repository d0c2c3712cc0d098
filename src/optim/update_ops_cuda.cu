// The optimizers' operations on a CUDA stream: the same bits as on the CPU (no contraction: -fmad=false).
#include "device/cuda/cuda_exec.cuh"
#include "optim/cuda/unit_passes.cuh"
#include "optim/update_ops_backends.h"
#include "optim/update_ops_on.h"

namespace mpt {

// Compiled in src/optim/cuda/.
MPT_UNIT_PASSES(extern, AdamW)
MPT_UNIT_PASSES(extern, Madam)
MPT_UNIT_PASSES(extern, MPlusAdamScale<DenseDirection>)
MPT_UNIT_PASSES(extern, MPlusAdamExponent<DenseDirection>)
MPT_UNIT_PASSES(extern, MPlusAdamScale<ProjectedDirection>)
MPT_UNIT_PASSES(extern, MPlusAdamExponent<ProjectedDirection>)
extern template struct UnitPasses<CudaExec, KahanUnit<KahanPerOpAdamW>>;

std::unique_ptr<UpdateOps> make_cuda_update_ops(CUstream_st* stream) {
  return std::make_unique<UpdateOpsOn<CudaExec>>(CudaExec{stream});
}

}  // namespace mpt
