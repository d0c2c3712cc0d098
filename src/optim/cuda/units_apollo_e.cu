// M+Adam with Apollo-E on a GPU.
#include "optim/cuda/unit_passes.cuh"

namespace mpt {

MPT_UNIT_PASSES(, MPlusAdamScale<ProjectedDirection>)

}  // namespace mpt
