// Kernel launches, and iteration on an NVIDIA GPU: one warp per row or update block, one thread per
// element, on one stream. Every kernel in the program is launched here, so that failures are named
// in one place.
#pragma once

#include <utility>

#include <cuda_runtime.h>

#include "core/check.h"
#include "device/cuda/cuda_handles.h"
#include "device/exec.h"

namespace mpt {

// Limit on the first dimension of a grid.
inline constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;

// Shared memory available to every block on most GPUs; kernels request more with allow_shared().
inline constexpr int64_t kDefaultSharedBytes = 48 << 10;

#ifndef MPT_DYNAMIC_SHARED  // the tests' fake CUDA has its own
#define MPT_DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#endif

// The block's dynamic shared memory: LaunchShape::shared_bytes bytes, aligned to 16.
template <class T>
__device__ T* dynamic_shared() {
  static_assert(alignof(T) <= 16);
  MPT_DYNAMIC_SHARED(mpt_dynamic_shared);
  return reinterpret_cast<T*>(mpt_dynamic_shared);
}

struct LaunchShape {
  int64_t blocks;
  int threads;  // per block
  cudaStream_t stream;
  int64_t shared_bytes = 0;  // dynamic shared memory per block
};

// Allows a kernel up to `bytes` of dynamic shared memory. Call once per kernel; needed above
// kDefaultSharedBytes.
template <class... Parameters>
void allow_shared(void (*kernel)(Parameters...), int64_t bytes) {
  if (!std::in_range<int>(bytes))
    throw error("kernel with {} bytes of dynamic shared memory: no GPU has as many", bytes);
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(bytes)),
             "cudaFuncSetAttribute");
}

// Does nothing if there are no blocks; rejects more than a grid takes instead of truncating to 32
// bits.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const LaunchShape& shape,
            const Arguments&... arguments) {
  if (shape.blocks == 0) return;
  if (shape.blocks < 0 || shape.blocks > kMostBlocks)
    throw error("kernel launch of {} blocks of {} threads: a grid takes at most {}", shape.blocks,
                shape.threads, kMostBlocks);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
  config.stream = shape.stream;
  check_cuda(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), "kernel launch");
}

// --- iteration -----------------------------------------------------------------------------------

// The 32 lanes of a warp. Row formulas are distributed element by element; reductions use a fixed
// tree.
struct WarpGroup {
  static constexpr int kLanes = 32;
  static constexpr unsigned kAll = 0xffffffffu;

  MPT_HD int64_t lane() const {
#ifdef MPT_ON_GPU
    return threadIdx.x % kLanes;
#else
    return 0;
#endif
  }
  // On return, all lanes see what f wrote. Shuffles, and thus the sums and maxima below, do not
  // order memory.
  template <class F>
  MPT_HD void each(int64_t n, const F& f) const {
    for (int64_t i = lane(); i < n; i += kLanes) f(i);
    wait();
  }
  template <class F>
  MPT_HD auto sum(int64_t n, const F& f) const {
    return reduce(decltype(f(int64_t{0}))(0), n, f, [](auto a, auto b) { return a + b; });
  }
  template <class F>
  MPT_HD auto max(int64_t n, const F& f) const {
    return reduce(decltype(f(int64_t{0}))(-INFINITY), n, f,
                  [](auto a, auto b) { return max_of(b, a); });
  }
  MPT_HD float reduce_max(float x, int lanes = kLanes) const {
    return across(
        x, [](float a, float b) { return max_of(b, a); }, lanes);
  }

 private:
  MPT_HD static void wait() {
#ifdef MPT_ON_GPU
    __syncwarp();
#endif
  }
  template <class T, class Combine>
  MPT_HD static T across(T x, const Combine& combine, int lanes = kLanes) {
#ifdef MPT_ON_GPU
    for (int distance = lanes / 2; distance > 0; distance /= 2)
      x = combine(x, __shfl_xor_sync(kAll, x, distance));
#endif
    return x;
  }
  template <class T, class F, class Combine>
  MPT_HD T reduce(T start, int64_t n, const F& f, const Combine& combine) const {
    T mine = start;
    for (int64_t i = lane(); i < n; i += kLanes) mine = combine(mine, f(i));
    return across(mine, combine);
  }
};

inline constexpr int kThreadsPerBlock = 256;
// Minimum of resident blocks per multiprocessor. Without it nvcc aims higher and spills registers
// to memory.
inline constexpr int kGroupBlocks = 2;

template <class F>
__global__ void __launch_bounds__(kThreadsPerBlock) elements_kernel(F f, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) f(i);
}

template <class F>
__global__ void __launch_bounds__(kThreadsPerBlock, kGroupBlocks) groups_kernel(F f, int64_t n) {
  const int64_t group = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / WarpGroup::kLanes;
  if (group < n) f(WarpGroup{}, group);
}

struct CudaExec {
  using Group = WarpGroup;

  cudaStream_t stream;

  template <class F>
  void elements(int64_t n, const F& f) const {
    launch(elements_kernel<F>, shape_for(n), f, n);
  }
  template <class F>
  void rows(int64_t n, const F& f) const {
    launch(groups_kernel<F>, shape_for(n * WarpGroup::kLanes), f, n);
  }
  template <class F>
  void blocks(int64_t n, const F& f) const {
    rows(n, f);
  }

 private:
  [[nodiscard]] LaunchShape shape_for(int64_t threads) const {
    return {.blocks = (threads + kThreadsPerBlock - 1) / kThreadsPerBlock,
            .threads = kThreadsPerBlock,
            .stream = stream};
  }
};

}  // namespace mpt
