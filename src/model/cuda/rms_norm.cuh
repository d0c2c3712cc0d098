// RMSNorm on a GPU: a row is read once, held in the registers of a team of warps, and written once.
#pragma once

#include "device/cuda/block_kernels.cuh"
#include "model/formulas/rms_norm.h"

namespace mpt {

// --- forward -------------------------------------------------------------------------------------

template <class T>
struct NormForwardRows {
  const T* residual;  // [rows, cols]
  const T* branch;    // [rows, cols] or null
  T* sum;             // [rows, cols], if there is a branch
  float* inv_rms;     // [rows]
  const T* gain;      // [cols]
  int64_t rows, cols;
  float eps;
};

// One tile of the sink per block; the block's teams take its rows in turn. The sink receives the
// results.
template <class T, class Sink, int kWarps, int kPacks>
__global__ void __launch_bounds__(RowTeam<kWarps>::kThreads)
    norm_forward_kernel(NormForwardRows<T> n, Sink sink) {
  using Team = RowTeam<kWarps>;
  constexpr int kWidth = kPackOf<T>;
  const Team team;
  const int packs = int(n.cols / kWidth);
  const auto each = [&](const auto& f) { team.template each_pack<kPacks>(packs, f); };
  Pack<T, kWidth> gain[kPacks];
  each([&](int k, int p) { gain[k] = load_pack<kWidth>(n.gain, p); });
  using Writer = typename Sink::template Writer<Team>;
  Writer writer(sink, n.cols);
  const int64_t first = int64_t{blockIdx.x} * writer.tile_rows(),
                end = min_of<int64_t>(first + writer.tile_rows(), n.rows);
  int turn = 0;
  for (int64_t row = first + team.in_block(); row < end; row += Team::kPerBlock, turn ^= 1) {
    const int64_t start = row * packs;
    Pack<T, kWidth> x[kPacks];
    each([&](int k, int p) { x[k] = load_pack<kWidth>(n.residual, start + p); });
    if (n.branch != nullptr) {
      Pack<T, kWidth> branch[kPacks];
      each([&](int k, int p) { branch[k] = load_pack<kWidth>(n.branch, start + p); });
      each([&](int k, int p) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) x[k].at[i] = added(x[k].at[i], branch[k].at[i]);
        store_pack(n.sum, start + p, x[k]);
      });
    }
    float squares = 0.0f;
    each([&](int k, int) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) squares += to_float(x[k].at[i]) * to_float(x[k].at[i]);
    });
    const float inverse = inverse_rms(team.sum(squares, turn), n.cols, n.eps);
    each([&](int k, int p) {
      Pack<float, kWidth> y;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) y.at[i] = rms_normed(x[k].at[i], inverse, gain[k].at[i]);
      writer.put(row, int(row - first), p, y);
    });
    if (team.lane() == 0) n.inv_rms[row] = inverse;
    if constexpr (!Writer::kTiles) break;  // a team has one row
  }
  writer.end_tile(first, end);
  writer.end();
}

// --- backward ------------------------------------------------------------------------------------

template <class T>
struct NormBackwardRows {
  const T* d_out;         // [rows, cols]
  const T* x;             // [rows, cols]
  const float* inv_rms;   // [rows]
  const T* gain;          // [cols]
  T* d_x;                 // [rows, cols] added to
  float* d_gain_partial;  // [chunks, cols]
  int64_t rows, cols, rows_per_chunk;

  [[nodiscard]] int64_t chunks() const { return (rows + rows_per_chunk - 1) / rows_per_chunk; }
};

// One chunk of rows per block. Its teams take rows in turn and keep their part of the gain's
// gradient in registers. The order of that sum depends only on the shape. The sink receives the
// stored values of d_x.
template <class T, class Sink, int kWarps, int kPacks>
__global__ void __launch_bounds__(RowTeam<kWarps>::kThreads)
    norm_backward_kernel(NormBackwardRows<T> n, Sink sink) {
  using Team = RowTeam<kWarps>;
  constexpr int kWidth = kPackOf<T>;
  const Team team;
  const int64_t first = int64_t{blockIdx.x} * n.rows_per_chunk,
                end = min_of(first + n.rows_per_chunk, n.rows);
  const int packs = int(n.cols / kWidth);
  const auto each = [&](const auto& f) { team.template each_pack<kPacks>(packs, f); };
  Pack<T, kWidth> gain[kPacks];
  Pack<float, kWidth> d_gain[kPacks];
  each([&](int k, int p) { gain[k] = load_pack<kWidth>(n.gain, p); });
#pragma unroll
  for (int k = 0; k < kPacks; ++k) d_gain[k] = filled<float, kWidth>(0.0f);

  using Writer = typename Sink::template Writer<Team>;
  Writer writer(sink, n.cols);
  int turn = 0;
  for (int64_t tile = first; tile < end; tile += writer.tile_rows()) {
    const int64_t tile_end = Writer::kTiles ? min_of<int64_t>(tile + writer.tile_rows(), end) : end;
    for (int64_t row = tile + team.in_block(); row < tile_end; row += Team::kPerBlock, turn ^= 1) {
      const int64_t start = row * packs;
      const float inverse = n.inv_rms[row];
      Pack<T, kWidth> dy[kPacks], x[kPacks], dx[kPacks];
      each([&](int k, int p) { dy[k] = load_pack<kWidth>(n.d_out, start + p); });
      each([&](int k, int p) { x[k] = load_pack<kWidth>(n.x, start + p); });
      each([&](int k, int p) { dx[k] = load_pack<kWidth>(n.d_x, start + p); });
      float dot = 0.0f;
      each([&](int k, int) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i)
          dot += to_float(dy[k].at[i]) * to_float(gain[k].at[i]) * to_float(x[k].at[i]);
      });
      const RmsNormGradient formula{inverse, team.sum(dot, turn) * inverse / float(n.cols)};
      each([&](int k, int p) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          const float d = to_float(dy[k].at[i]), in = to_float(x[k].at[i]);
          d_gain[k].at[i] += formula.of_gain(d, in);
          dx[k].at[i] =
              from_float<T>(to_float(dx[k].at[i]) + formula.of_x(d, in, to_float(gain[k].at[i])));
        }
        store_pack(n.d_x, start + p, dx[k]);
        writer.put(row, int(row - tile), p, to_floats(dx[k]));
      });
    }
    writer.end_tile(tile, tile_end);
    if constexpr (!Writer::kTiles) break;
  }
  writer.end();

  float* partial = n.d_gain_partial + int64_t{blockIdx.x} * n.cols;
  if constexpr (Team::kPerBlock == 1) {
    each([&](int k, int p) { store_pack(partial, p, d_gain[k]); });
  } else {
    __shared__ Pack<float, kWidth> parts[Team::kPerBlock][kPacks * Team::kLanes];
    each([&](int k, int p) { parts[team.in_block()][p] = d_gain[k]; });
    __syncthreads();
    for (int64_t c = threadIdx.x; c < n.cols; c += Team::kThreads) {
      float sum = 0.0f;
#pragma unroll
      for (int other = 0; other < Team::kPerBlock; ++other)
        sum += parts[other][c / kWidth].at[c % kWidth];
      partial[c] = sum;
    }
  }
}

// --- gain's gradient from its parts --------------------------------------------------------------

// A block sums kSumColumns columns: 128 threads per column each take every 128th row, and their
// sums are added in order.
inline constexpr int kSumColumns = 8, kSumThreads = 1024;

template <class D>
__global__ void __launch_bounds__(kSumThreads) gain_gradient_kernel(GainGradient<D> g) {
  constexpr int kDown = kSumThreads / kSumColumns;
  __shared__ float parts[kDown][kSumColumns];
  const int column = int(threadIdx.x) % kSumColumns, down = int(threadIdx.x) / kSumColumns;
  const int64_t c = int64_t{blockIdx.x} * kSumColumns + column;
  float sum = 0.0f;
  if (c < g.cols) {
#pragma unroll 8
    for (int64_t chunk = down; chunk < g.chunks; chunk += kDown)
      sum += g.partial[chunk * g.cols + c];
  }
  parts[down][column] = sum;
  __syncthreads();
  if (down != 0 || c >= g.cols) return;
  float total = g.keep == 0.0f ? 0.0f : to_float(g.d_gain[c]);
  for (int other = 0; other < kDown; ++other) total += parts[other][column];
  g.d_gain[c] = from_float<D>(total);
}

}  // namespace mpt
