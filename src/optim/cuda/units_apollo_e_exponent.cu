// M+Adam with Apollo-E and decay of exponents on a GPU.
#include "optim/cuda/unit_passes.cuh"

namespace mpt {

MPT_UNIT_PASSES(, MPlusAdamExponent<ProjectedDirection>)

}  // namespace mpt
