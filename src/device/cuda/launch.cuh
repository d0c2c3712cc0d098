// Every kernel of this program is launched here, so that one place names what failed.
#pragma once

#include <source_location>

#include <cuda_runtime.h>

#include "device/cuda/cuda_error.h"

namespace mpt {

// What every block of most GPUs may take; a kernel asks for more with allow_shared().
inline constexpr int64_t kDefaultSharedBytes = 48 << 10;

// The dynamic shared memory of the block: LaunchShape::shared_bytes of it, at a multiple of 16 bytes.
#if defined(__CUDACC__) || defined(MPT_FAKE_CUDA)
template <class T>
__device__ T* dynamic_shared() {
  static_assert(alignof(T) <= 16);
#ifdef MPT_FAKE_CUDA
  return static_cast<T*>(fake_cuda::detail::dynamic_shared_memory());
#else
  extern __shared__ __align__(16) unsigned char mpt_dynamic_shared[];
  return reinterpret_cast<T*>(mpt_dynamic_shared);
#endif
}
#endif

struct LaunchShape {
  int64_t blocks;
  int threads;  // of a block
  cudaStream_t stream;
  int64_t shared_bytes = 0;  // dynamic shared memory of a block
};

// Lets a kernel take up to `bytes` of dynamic shared memory. Once per kernel; needed beyond
// kDefaultSharedBytes.
template <class... Parameters>
void allow_shared(void (*kernel)(Parameters...), int64_t bytes) {
  check_cuda(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
      "cudaFuncSetAttribute");
}

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
