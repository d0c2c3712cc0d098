// Iteration on an NVIDIA GPU: a warp per row or update block, a thread per element, in one stream.
#pragma once

#include <cuda_runtime.h>

#include "device/cuda/launch.cuh"
#include "device/exec.h"

namespace mpt {

// The 32 lanes of a warp. Row formulas are shared out element by element, sums are reduced in a fixed tree.
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
    return reduce(decltype(f(int64_t{0}))(-INFINITY), n, f, [](auto a, auto b) { return max_of(b, a); });
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
// At least so many at once on a multiprocessor. Without a number nvcc aims at more, and makes room for it in
// memory.
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
