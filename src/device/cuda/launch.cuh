// Every kernel of this program is launched here, so that one place names what failed.
#pragma once

#include <source_location>

#include <cuda_runtime.h>

#include "device/cuda/cuda_error.h"

namespace mpt {

struct LaunchShape {
  int64_t blocks;
  int threads;  // of a block
  cudaStream_t stream;
  int64_t shared_bytes = 0;  // dynamic shared memory of a block
};

// Nothing is launched for no blocks.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const LaunchShape& shape, const Arguments&... arguments) {
  if (shape.blocks == 0) return;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
  config.stream = shape.stream;
  check_cuda(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), "kernel launch");
}

}  // namespace mpt
