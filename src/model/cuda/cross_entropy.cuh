// Cross entropy on a GPU: a block reads its row of logits once, keeps it in shared memory and
// writes the gradient once.
#pragma once

#include "device/cuda/block_kernels.cuh"
#include "device/cuda/cuda_exec.cuh"
#include "model/formulas/cross_entropy.h"

namespace mpt {

using CrossEntropyTeam = RowTeam<16>;

// Three blocks of 64 KB, a row of 32 000 BF16 logits, fit on a multiprocessor.
inline constexpr int kCrossEntropyBlocks = 3;

// Processes kWidth elements at a time: a pack, or 1 where rows are not aligned. Dynamic shared
// memory: one row.
template <class T, int kWidth>
__global__ void __launch_bounds__(CrossEntropyTeam::kThreads, kCrossEntropyBlocks)
    cross_entropy_kernel(CrossEntropy<T> rows) {
  constexpr int kThreads = CrossEntropyTeam::kThreads, kInFlight = 4;
  const CrossEntropyTeam team;
  const int64_t row = team.index();
  T* const z = rows.logits + row * rows.cols;
  const int packs = int(rows.cols / kWidth), lane = team.lane();
  const int32_t target = rows.targets[row];
  if (target == kIgnoreTarget) {
    if (rows.scale != nullptr)
      for (int p = lane; p < packs; p += kThreads)
        store_pack(z, p, filled<T, kWidth>(from_float<T>(0.0f)));
    if (lane == 0) rows.losses[row] = 0.0f;
    return;
  }
  const float of_target = to_float(z[target]);

  // Each lane reads back only values it stored itself.
  T* const kept = dynamic_shared<T>();
  float top = -INFINITY;
  for (int first = lane; first < packs; first += kThreads * kInFlight) {
    Pack<T, kWidth> in_flight[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k)
      if (const int p = first + k * kThreads; p < packs) in_flight[k] = load_pack<kWidth>(z, p);
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      const int p = first + k * kThreads;
      if (p >= packs) break;
      store_pack(kept, p, in_flight[k]);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) top = max_of(to_float(in_flight[k].at[i]), top);
    }
  }
  top = team.max(top, 0);

  float sum = 0.0f;
  for (int p = lane; p < packs; p += kThreads) {
    const Pack<T, kWidth> pack = load_pack<kWidth>(kept, p);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum += softmax_term(to_float(pack.at[i]), top);
  }
  sum = team.sum(sum, 1);
  if (lane == 0) rows.losses[row] = cross_entropy_loss(sum, top, of_target);
  if (rows.scale == nullptr) return;

  const CrossEntropyGradient gradient{top, softmax_factor(sum, top, *rows.scale, rows.z_loss),
                                      *rows.scale, target};
  for (int p = lane; p < packs; p += kThreads) {
    Pack<float, kWidth> d = to_floats(load_pack<kWidth>(kept, p));
#pragma unroll
    for (int i = 0; i < kWidth; ++i) d.at[i] = gradient(d.at[i], p * kWidth + i);
    store_pack(z, p, from_floats<T>(d));
  }
}

// Sums all losses in one block: each thread adds its own in order, followed by a tree over threads.
template <int kThreads>
__global__ void __launch_bounds__(kThreads) sum_losses_kernel(SumLosses losses) {
  constexpr int kWarp = 32, kWarps = kThreads / kWarp;
  __shared__ double parts[kWarps];
  double sum = 0.0;
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < losses.count; i += kThreads) sum += double(losses.losses[i]);
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < kWarps; ++warp) sum += parts[warp];
  *losses.result = sum;
}

}  // namespace mpt
