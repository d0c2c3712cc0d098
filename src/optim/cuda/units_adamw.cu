// AdamW on a GPU.
#include "optim/cuda/unit_passes.cuh"

namespace mpt {

MPT_UNIT_PASSES(, AdamW)
template struct UnitPasses<CudaExec, KahanUnit<KahanPerOpAdamW>>;

}  // namespace mpt
