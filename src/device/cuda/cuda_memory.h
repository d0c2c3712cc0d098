// GPU memory: one allocation per request, pinned host images, and a reader with its own stream.
#pragma once

#include <memory>

#include <cuda_runtime.h>

#include "device/device.h"
#include "device/memory.h"

namespace mpt {

inline constexpr int64_t kCudaAlignment =
    256;  // bytes; alignment of every buffer and granularity of sizes

// Zero-fills on `stream`. Throws Error naming purpose, requested and free memory if out of memory.
std::unique_ptr<Allocator> make_cuda_allocator(cudaStream_t stream);

// Copy of rows between GPU and host memory; pitches are bytes from one row to the next.
struct RowsCopy {
  void* target;
  size_t target_pitch;
  const void* source;
  size_t source_pitch;
  size_t width, rows;  // bytes per row, and number of rows
  cudaMemcpyKind kind;
  size_t most_pitch;  // limit on the GPU (cudaDeviceProp::memPitch): just below 2 GiB
};
// Enqueues the copy: as a single span if there are no gaps between rows, else with their pitches,
// or row by row if a pitch exceeds the GPU's limit.
void copy_rows(const RowsCopy& copy, cudaStream_t stream);

// Reads through two pinned buffers: one is filled while the other is consumed. `work` is the stream
// of the device's own work on that GPU.
std::unique_ptr<DeviceReader> make_cuda_reader(cudaStream_t work, int gpu);

}  // namespace mpt
