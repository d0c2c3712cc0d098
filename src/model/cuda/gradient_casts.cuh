// Backward operations that cast their outputs to FP8 in the same pass, by tuned kernels; a separate
// file, so it compiles in parallel.
#pragma once

#include <cuda_runtime.h>

#include "model/cuda/rms_norm.cuh"
#include "model/llama_ops.h"

namespace mpt {

// Like LlamaOps::swiglu_backward_and_cast() and rope_and_cast(), enqueued on `stream`; gate_up and
// qkv stay unchanged. Return false and do nothing for types other than bf16 and e5m2, and where
// 16-byte accesses do not fit.
bool cast_swiglu_gradient(cudaStream_t stream, const Tensor& gate_up, const Tensor& d_out,
                          const Fp8CastCall& call);
bool cast_rotated(cudaStream_t stream, const RopeCall& rope, const Fp8CastCall& call);
// Like norm_backward_and_cast(), except for the sum of the gain's gradient over chunks.
bool norm_backward_and_cast_rows(cudaStream_t stream, const NormBackwardRows<bf16>& n,
                                 const Fp8CastCall& call);
// Like Fp8Casts::cast(), for a bf16 tensor.
bool cast_packed_rows(cudaStream_t stream, const Tensor& values, const Fp8CastCall& call);

}  // namespace mpt
