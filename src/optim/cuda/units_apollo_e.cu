// M+Adam with Apollo-E on a GPU.
#include "device/cuda/cuda_exec.cuh"
#include "optim/unit_passes_by_rule.h"

namespace mpt {

MPT_UNIT_PASSES(, CudaExec, MPlusAdamScale<ProjectedDirection>)

}  // namespace mpt
