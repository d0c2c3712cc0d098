// The LLaMA operations of each backend; make_llama_ops() picks among them.
#pragma once

#include <memory>

#include "model/llama_ops.h"

struct CUstream_st;

namespace mpt {

std::unique_ptr<LlamaOps> make_cpu_llama_ops();
// Enqueued on `stream`. Only in builds with CUDA.
std::unique_ptr<LlamaOps> make_cuda_llama_ops(CUstream_st* stream);
// The same without tuned kernels: what those are tested against.
std::unique_ptr<LlamaOps> make_generic_cuda_llama_ops(CUstream_st* stream);

}  // namespace mpt
