// Casts of computed inputs by tuned kernels; a separate file, so it compiles in parallel.
#pragma once

#include <cuda_runtime.h>

#include "model/cuda/rms_norm.cuh"
#include "model/llama_ops.h"

namespace mpt {

// Like LlamaOps::cast() and gather_amax(), enqueued on `stream`. Returns false and does nothing if
// rows are not 16-byte aligned.
bool cast_packed(cudaStream_t stream, const ComputedInput& input, const Fp8CastCall& call);
bool gather_amax_packed(cudaStream_t stream, const ComputedInput& input, const Fp8CastCall& call);

// Like LlamaOps::norm_forward_and_cast(). Returns false and does nothing where 16-byte accesses or
// shared memory do not fit.
bool norm_forward_and_cast_rows(cudaStream_t stream, const NormForwardRows<bf16>& n,
                                const Fp8CastCall& call);

}  // namespace mpt
