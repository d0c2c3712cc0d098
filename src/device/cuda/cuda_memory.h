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

// Rows between memory of the GPU and of the host; pitches are bytes from one row to the next.
struct RowsCopy {
  void* target;
  size_t target_pitch;
  const void* source;
  size_t source_pitch;
  size_t width, rows;  // bytes of a row, and how many
  cudaMemcpyKind kind;
  size_t most_pitch;  // that the GPU takes (cudaDeviceProp::memPitch): just below 2 GiB
};
// Enqueues it: as one stretch where nothing lies between rows, else with their pitches, and row by
// row where a pitch is longer than the GPU takes.
void copy_rows(const RowsCopy& copy, cudaStream_t stream);

// Reads through two pinned buffers: one is filled while the other is consumed. `work` is the stream
// of the device's own work on that GPU.
std::unique_ptr<DeviceReader> make_cuda_reader(cudaStream_t work, int gpu);

}  // namespace mpt
