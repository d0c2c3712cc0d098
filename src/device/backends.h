// The backends that this program was built with, and the choice between them.
#pragma once

#include <memory>
#include <string>

#include "device/cuda/cuda_device.h"
#include "device/device.h"

namespace mpt {

struct DeviceOptions {
  Backend backend = Backend::kCpu;
  int threads = 0;  // of the CPU; 0: OMP_NUM_THREADS, else every processor this process may run on
  CudaDeviceOptions cuda{};
};

// Throws Error, saying why, where the backend is not built in or the machine has no device for it.
std::unique_ptr<Device> make_device(const DeviceOptions& options);

// For counting memory with a PlanningAllocator only, so that no GPU is needed. Throws Error where the backend
// is not built in.
std::unique_ptr<Device> make_planning_device(const DeviceOptions& options);

// Why the backend cannot be used here; empty where it can.
std::string why_unavailable(const DeviceOptions& options);

// The fastest backend that can be used: CUDA where it is built in and there is a GPU for it, else the CPU.
Backend available_backend();

}  // namespace mpt
