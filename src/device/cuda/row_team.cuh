// The warps that share a row and hold it in registers, a pack of elements at a time: lane l of a team has
// packs l, l + lanes, l + 2 lanes, ... of the row, so that neighbouring lanes access neighbouring memory.
#pragma once

#include <cuda_runtime.h>

#include "core/scalar_math.h"
#include "device/cuda/pack.cuh"

namespace mpt {

// A team of one warp has seven others beside it in its block; a larger one has a block of its own.
template <int kWarps>
struct RowTeam {
  static constexpr int kLanes = 32 * kWarps;
  static constexpr int kPerBlock = kWarps == 1 ? 8 : 1;
  static constexpr int kThreads = kLanes * kPerBlock;

  static int64_t blocks_for(int64_t rows) { return (rows + kPerBlock - 1) / kPerBlock; }

  __device__ RowTeam() : lane_(int(threadIdx.x) % kLanes) {}
  __device__ int lane() const { return lane_; }
  __device__ int in_block() const { return int(threadIdx.x) / kLanes; }
  __device__ int64_t index() const { return int64_t{blockIdx.x} * kPerBlock + in_block(); }

  // f(k, pack) for each of this lane's packs of a row of so many: its k-th, at most kPacks.
  template <int kPacks, class F>
  __device__ void each_pack(int packs, const F& f) const {
#pragma unroll
    for (int k = 0; k < kPacks; ++k)
      if (const int pack = k * kLanes + lane(); pack < packs) f(k, pack);
  }

  // Of the lanes' numbers, in a fixed order, for every lane. All lanes must call; `turn` alternates between 0
  // and 1 from call to call, so that no lane overwrites what another still reads.
  __device__ float sum(float x, int turn) const {
    return reduce(x, turn, [](float a, float b) { return a + b; });
  }
  // A NaN is ignored.
  __device__ float max(float x, int turn) const {
    return reduce(x, turn, [](float a, float b) { return max_of(b, a); });
  }

 private:
  static constexpr unsigned kAll = 0xffffffffu;

  template <class Combine>
  __device__ static float reduce(float x, int turn, const Combine& combine) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) x = combine(x, __shfl_xor_sync(kAll, x, distance));
    if constexpr (kWarps > 1) {
      __shared__ float parts[2][kWarps];
      if (threadIdx.x % 32 == 0) parts[turn][threadIdx.x / 32] = x;
      __syncthreads();
      x = parts[turn][0];
#pragma unroll
      for (int warp = 1; warp < kWarps; ++warp) x = combine(x, parts[turn][warp]);
    }
    return x;
  }

  int lane_;  // once, so that a compiler sees that each_pack() has the same packs every time
};

}  // namespace mpt
