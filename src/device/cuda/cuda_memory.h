// Memory of a GPU, each request by itself, and the pinned host memory of staged tensors' images.
#pragma once

#include <memory>

#include <cuda_runtime.h>

#include "device/memory_plan.h"

namespace mpt {

inline constexpr int64_t kCudaAlignment =
    256;  // bytes; of every buffer's start, and what sizes are counted in

// Zero-fills in `stream`. Throws Error, naming purpose, wanted and free memory, where it does not suffice.
std::unique_ptr<Allocator> make_cuda_allocator(cudaStream_t stream);

}  // namespace mpt
