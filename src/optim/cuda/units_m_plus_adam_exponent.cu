// M+Adam with decay of exponents on a GPU.
#include "optim/cuda/unit_passes.cuh"

namespace mpt {

MPT_UNIT_PASSES(, MPlusAdamExponent<DenseDirection>)

}  // namespace mpt
