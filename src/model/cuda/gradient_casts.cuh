// Backward operations that cast what they write to FP8 in the same pass, by tuned kernels, in a
// separate file so that it compiles in parallel.
#pragma once

#include <cuda_runtime.h>

#include "model/cuda/rms_norm.cuh"
#include "model/llama_ops.h"

namespace mpt {

// As LlamaOps::swiglu_backward_and_cast() and rope_and_cast(), enqueued on `stream`; gate_up and
// qkv stay as they are. They return false and do nothing for other types than bf16 and e5m2, and
// where accesses of 16 bytes do not fit.
bool cast_swiglu_gradient(cudaStream_t stream, const Tensor& gate_up, const Tensor& d_out,
                          const Fp8CastCall& call);
bool cast_rotated(cudaStream_t stream, const RopeCall& rope, const Fp8CastCall& call);
// Likewise norm_backward_and_cast(), but for the sum of the gain's gradient over chunks.
bool norm_backward_and_cast_rows(cudaStream_t stream, const NormBackwardRows<bf16>& n,
                                 const Fp8CastCall& call);
// As Fp8Casts::cast() of a tensor in bf16.
bool cast_packed_rows(cudaStream_t stream, const Tensor& values, const Fp8CastCall& call);

}  // namespace mpt
