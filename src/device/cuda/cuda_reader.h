// Reads the GPU's memory on a stream of its own, through two pinned buffers: one is filled while the other is
// taken.
#pragma once

#include <memory>

#include <cuda_runtime.h>

#include "device/device_reader.h"

namespace mpt {

// `work` is the stream of the device's own work on that GPU.
std::unique_ptr<DeviceReader> make_cuda_reader(cudaStream_t work, int gpu);

}  // namespace mpt
