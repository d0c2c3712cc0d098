// The LLaMA operations of a CUDA stream, for a device that owns one.
#pragma once

#include <memory>

#include "model/llama_ops.h"

struct CUstream_st;

namespace mpt {

std::unique_ptr<LlamaOps> make_cuda_llama_ops(CUstream_st* stream);

}  // namespace mpt
