// Casts of computed inputs by tuned kernels, in a file of their own to compile beside the others.
#pragma once

#include <cuda_runtime.h>

#include "model/llama_ops.h"

namespace mpt {

// As LlamaOps::cast() and gather_amax(), enqueued on `stream`. False where rows do not begin at multiples of
// 16 bytes: nothing is done then.
bool cast_packed(cudaStream_t stream, const ComputedInput& input, const Fp8CastCall& call);
bool gather_amax_packed(cudaStream_t stream, const ComputedInput& input, const Fp8CastCall& call);

}  // namespace mpt
