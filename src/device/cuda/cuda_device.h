// The CUDA backend: memory of one NVIDIA GPU, cuBLASLt products, CUDA graphs, all in one stream.
#pragma once

#include <memory>
#include <string>

#include "device/cuda/cuda_attention.h"
#include "device/cuda/cuda_gemm.h"
#include "device/device.h"

namespace mpt {

// Whether repeated work is recorded and replayed.
enum class CudaGraphs : uint8_t { kOff, kOn };

struct CudaDeviceOptions {
  int index = 0;  // among the GPUs that CUDA_VISIBLE_DEVICES leaves
  CudaGraphs graphs = CudaGraphs::kOn;
  GemmTuning tuning = GemmTuning::kOn;
  CudaAttention attention = CudaAttention::kAuto;
};

// Throws Error, saying why, where no_cuda_device() has a reason.
std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options);

// Counts the memory that a CUDA device's products and attention would take, on a machine that need not have
// one. Its memory_bytes() is the largest number there is; what would touch a GPU throws LogicError.
std::unique_ptr<Device> make_cuda_planning_device(const CudaDeviceOptions& options = {});

// Why this GPU cannot be used; empty where it can.
std::string no_cuda_device(int index);

}  // namespace mpt
