// Embedding lookup and its gradient on a GPU, a pack of columns at a time.
//
// Frequent tokens follow Zipf's law: one row of the table may have thousands of uses, most have a
// few. A row with fewer than kLongRun uses is summed in order, by one warp per slice of its
// columns. The uses of a row with more are divided among the threads of a block, whose sums are
// added in order. Either way the order depends only on the uses.
#pragma once

#include <cuda_runtime.h>

#include "device/cuda/block_kernels.cuh"
#include "model/formulas/embedding.h"

namespace mpt {

// Pack i of the output.
template <class T>
struct EmbeddingForwardPacks {
  EmbeddingForward<T> rows;

  MPT_HD void operator()(int64_t i) const {
    constexpr int kWidth = kPackOf<T>;
    const int64_t packs = rows.cols / kWidth, row = i / packs, pack = i - row * packs;
    store_pack(rows.out, i,
               load_pack<kWidth>(rows.table, int64_t{rows.tokens[row]} * packs + pack));
  }
};

inline constexpr int kLongRun = 128;

// Adds `pack` of gradient rows uses[begin], uses[begin + kStep], ... to sum, with several loads at
// a time.
template <int kStep, class T, class D, int kWidth>
MPT_HD void add_uses(const EmbeddingBackward<T, D>& e, int32_t begin, int32_t end, int64_t pack,
                     Pack<float, kWidth>& sum) {
  constexpr int kInFlight = 4;
  const int64_t packs = e.cols / kWidth;
  int32_t i = begin;
  for (; i + (kInFlight - 1) * kStep < end; i += kInFlight * kStep) {
    Pack<T, kWidth> d[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k)
      d[k] = load_pack<kWidth>(e.d_out, int64_t{e.uses[i + k * kStep]} * packs + pack);
#pragma unroll
    for (int k = 0; k < kInFlight; ++k)
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sum.at[j] += to_float(d[k].at[j]);
  }
  for (; i < end; i += kStep) {
    const Pack<T, kWidth> d = load_pack<kWidth>(e.d_out, int64_t{e.uses[i]} * packs + pack);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum.at[j] += to_float(d.at[j]);
  }
}

// Slice `item` of the table, row by row, if its row has fewer than kLongRun uses. One pack per
// lane.
template <class T, class D>
struct EmbeddingBackwardSlices {
  EmbeddingBackward<T, D> rows;
  int64_t slices;  // per row

  template <class G>
  MPT_HD void operator()(G group, int64_t item) const {
    constexpr int kWidth = kPackOf<T>;
    const int64_t packs = rows.cols / kWidth, row = item / slices,
                  pack = (item - row * slices) * G::kLanes + group.lane();
    const int32_t begin = rows.first[row], end = rows.first[row + 1];
    if (end - begin >= kLongRun || pack >= packs || (begin == end && rows.keep != 0.0f)) return;
    const int64_t target = row * packs + pack;
    Pack<float, kWidth> sum = filled<float, kWidth>(0.0f);
    if (rows.keep != 0.0f) sum = to_floats(load_pack<kWidth>(rows.d_table, target));
    add_uses<1>(rows, begin, end, pack, sum);
    store_pack(rows.d_table, target, from_floats<D>(sum));
  }
};

// Returns the table row to which uses[position] belongs: the last row whose uses begin at or before
// it.
MPT_HD int64_t row_of_use(const int32_t* first, int64_t vocabulary, int64_t position) {
  int64_t low = 0, high = vocabulary;  // first[low] <= position < first[high]
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (first[middle] <= position ? low : high) = middle;
  }
  return low;
}

// Rows with kLongRun uses or more: their uses contain a multiple of kLongRun, and the block of the
// first one sums them. kRunLanes threads each have a pack of a slice's columns; kRunThreads /
// kRunLanes uses are read at once.
inline constexpr int kRunThreads = 512, kRunLanes = 8;

template <class T, class D>
__global__ void __launch_bounds__(kRunThreads)
    embedding_backward_long_kernel(EmbeddingBackward<T, D> rows, int64_t vocabulary,
                                   int64_t slices) {
  constexpr int kWidth = kPackOf<T>, kAtOnce = kRunThreads / kRunLanes;
  const int64_t window = int64_t{blockIdx.x} / slices,
                slice = int64_t{blockIdx.x} - window * slices;
  const int64_t row = row_of_use(rows.first, vocabulary, window * kLongRun);
  const int32_t begin = rows.first[row], end = rows.first[row + 1];
  const bool first_in_run = (begin + kLongRun - 1) / kLongRun == window;
  if (end - begin < kLongRun || !first_in_run) return;

  __shared__ float parts[kAtOnce][kRunLanes * kWidth];
  const int lane = int(threadIdx.x) % kRunLanes, turn = int(threadIdx.x) / kRunLanes;
  const int64_t pack = slice * kRunLanes + lane;
  Pack<float, kWidth> sum = filled<float, kWidth>(0.0f);
  if (pack * kWidth < rows.cols) add_uses<kAtOnce>(rows, begin + turn, end, pack, sum);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) parts[turn][lane * kWidth + j] = sum.at[j];
  __syncthreads();

  const int64_t mine = slice * kRunLanes * kWidth + threadIdx.x;
  if (threadIdx.x >= kRunLanes * kWidth || mine >= rows.cols) return;
  D* const target = rows.d_table + row * rows.cols + mine;
  float total = rows.keep == 0.0f ? 0.0f : to_float(*target);
  for (int other = 0; other < kAtOnce; ++other) total += parts[other][threadIdx.x];
  *target = from_float<D>(total);
}

}  // namespace mpt
