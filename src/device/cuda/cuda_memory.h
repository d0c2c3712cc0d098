// GPU memory: one allocation per request, pinned host images, and a reader with its own stream.
#pragma once

#include <memory>

#include <cuda_runtime.h>

#include "device/device.h"
#include "device/memory.h"

namespace mpt {

inline constexpr int64_t kCudaAlignment =
    256;  // bytes; of every buffer's start, and what sizes are counted in

// Zero-fills on `stream`. Throws Error naming purpose, requested and free memory if there is too
// little.
std::unique_ptr<Allocator> make_cuda_allocator(cudaStream_t stream);

// Reads through two pinned buffers: one is filled while the other is consumed. `work` is the stream
// of the device's own work on that GPU.
std::unique_ptr<DeviceReader> make_cuda_reader(cudaStream_t work, int gpu);

}  // namespace mpt
