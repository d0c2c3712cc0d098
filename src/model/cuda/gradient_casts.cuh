// Backward operations that cast what they write to FP8 in the same pass, by tuned kernels, in a
// separate file so that it compiles in parallel.
#pragma once

#include <cuda_runtime.h>

#include "model/llama_ops.h"

namespace mpt {

// As LlamaOps::swiglu_backward_and_cast(), enqueued on `stream`; gate_up stays as it is. Returns
// false and does nothing for other types than bf16 and e5m2, and if rows are not 16-byte aligned.
bool cast_swiglu_gradient(cudaStream_t stream, const Tensor& gate_up, const Tensor& d_out,
                          const Fp8CastCall& call);

}  // namespace mpt
