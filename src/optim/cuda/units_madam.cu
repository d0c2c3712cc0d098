// Madam on a GPU.
#include "optim/cuda/unit_passes.cuh"

namespace mpt {

MPT_UNIT_PASSES(, Madam)

}  // namespace mpt
