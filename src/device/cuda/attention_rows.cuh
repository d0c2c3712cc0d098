// Kernels of attention by GEMMs: one warp per row of scores, for softmax and its gradient, and sums
// over the readers of a key/value head.
#pragma once

#include <cmath>
#include <cstring>

#include "core/bf16.h"
#include "device/cuda/cuda_attention.h"
#include "device/cuda/cuda_exec.cuh"

namespace mpt {

constexpr int64_t kAccess = 16;  // bytes per access of a lane
// Elements per lane and step: one access of the storage type.
template <class T>
constexpr int kPack = kAccess / int(sizeof(T));

// Uses memcpy because the same memory holds fp32 scores first and probabilities of the storage type
// later.
template <class T>
__device__ void load(const T* source, T (&target)[kAccess / sizeof(T)]) {
  memcpy(target, __builtin_assume_aligned(static_cast<const void*>(source), kAccess), kAccess);
}
template <class T>
__device__ void store(T* target, const T (&source)[kAccess / sizeof(T)]) {
  memcpy(__builtin_assume_aligned(static_cast<void*>(target), kAccess), source, kAccess);
}
// N fp32 numbers, a multiple of one access.
template <int N>
__device__ void load_floats(const float* source, float (&target)[N]) {
  static_assert(N % 4 == 0);
  for (int i = 0; i < N; i += 4) {
    float part[4];
    load(source + i, part);
    for (int j = 0; j < 4; ++j) target[i + j] = part[j];
  }
}
template <class T>
__device__ void store_rounded(T* target, const float (&source)[kPack<T>]) {
  T rounded[kPack<T>];
  for (int i = 0; i < kPack<T>; ++i) rounded[i] = from_float<T>(source[i]);
  store(target, rounded);
}

struct SeenKeys {
  int64_t first, last;

  [[nodiscard]] __device__ bool contains(int64_t col) const { return col >= first && col <= last; }
  // Whether any, and whether all, of N columns from `col` on are seen.
  template <int N>
  [[nodiscard]] __device__ bool any_of(int64_t col) const {
    return col + N > first && col <= last;
  }
  template <int N>
  [[nodiscard]] __device__ bool all_of(int64_t col) const {
    return col >= first && col + N <= last + 1;
  }
};

// The scores of a chunk of pairs: row r is token r % tokens of pair first_pair + r / tokens.
struct ScoreRows {
  float*
      scores;  // [rows, stride], scaled; then probabilities of the storage type, at the row's start
  int64_t rows, tokens, stride;
  float* log_sum_exp;  // for the chunk's first pair
  int64_t log_sum_exp_stride;
  const int32_t* document_begin;  // for the chunk's first sequence; null: every row is one document
  int64_t heads;                  // per sequence in this chunk

  [[nodiscard]] __device__ int64_t token(int64_t row) const { return row % tokens; }
  // Keys seen by a row: from the beginning of its document to its own token.
  [[nodiscard]] __device__ SeenKeys seen(int64_t row) const {
    const int64_t t = token(row);
    if (document_begin == nullptr) return {0, t};
    return {document_begin[row / tokens / heads * tokens + t], t};
  }
  [[nodiscard]] __device__ float* scores_of(int64_t row) const { return scores + row * stride; }
  [[nodiscard]] __device__ float& log_sum_exp_of(int64_t row) const {
    return log_sum_exp[row / tokens * log_sum_exp_stride + row % tokens];
  }
};

// End of the columns that the GEMMs read in a row: the end of its band.
inline __device__ int64_t band_end(int64_t token, int64_t tokens) {
  return min_of((token / GemmAttention::kBand + 1) * GemmAttention::kBand, tokens);
}

inline __device__ int64_t row_of_this_warp() {
  return (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / WarpGroup::kLanes;
}

// Softmax state of a lane, then of the warp: the largest score and the sum of exponentials relative
// to it.
struct Normaliser {
  float top = -INFINITY;
  float sum = 0.0f;

  template <int N>
  __device__ void add(const float (&x)[N]) {
    float above = top;
    for (int i = 0; i < N; ++i) above = max_of(above, x[i]);
    if (above > top) {
      sum *= exp_of(top - above);
      top = above;
    }
    float added = 0.0f;
    for (int i = 0; i < N; ++i) added += exp_of(x[i] - top);
    sum += added;
  }
  // Logarithm of the whole row's sum of exponentials, in every lane.
  __device__ float log_sum_exp(const WarpGroup& group) const {
    const float highest = group.reduce_max(top);
    const float mine = sum * exp_of(top - highest);
    return highest + logf(group.sum(WarpGroup::kLanes, [&](int64_t) { return mine; }));
  }
};

// Loads N scores from column `col` on; scores of unseen keys become -inf, so their exponentials are
// 0.
template <int N>
__device__ void load_seen(const float* scores, int64_t col, const SeenKeys& seen, float (&x)[N]) {
  load_floats(scores + col, x);
  if (!seen.all_of<N>(col))
    for (int i = 0; i < N; ++i) x[i] = seen.contains(col + i) ? x[i] : -INFINITY;
}

// First column of the round of a warp's lanes in which the seen keys begin.
template <int N>
__device__ int64_t first_round(const SeenKeys& seen) {
  constexpr int64_t kRound = int64_t{WarpGroup::kLanes} * N;
  return seen.first / kRound * kRound;
}

// Replaces S by P = softmax(S) and writes log_sum_exp.
template <class T>
__global__ void __launch_bounds__(kThreadsPerBlock) softmax_kernel(ScoreRows r) {
  const int64_t row = row_of_this_warp();
  if (row >= r.rows) return;
  constexpr int N = kPack<T>;
  const WarpGroup group;
  const SeenKeys seen = r.seen(row);
  const int64_t mine = group.lane() * N;
  const float* scores = r.scores_of(row);
  Normaliser normaliser;
#pragma unroll 2
  for (int64_t col = first_round<N>(seen) + mine; col <= seen.last; col += WarpGroup::kLanes * N) {
    if (!seen.any_of<N>(col)) continue;
    float x[N];
    load_seen(scores, col, seen, x);
    normaliser.add(x);
  }
  const float log_sum_exp = normaliser.log_sum_exp(group);
  if (group.lane() == 0) r.log_sum_exp_of(row) = log_sum_exp;
  T* probabilities = reinterpret_cast<T*>(r.scores_of(row));
  const int64_t end = band_end(seen.last, r.tokens);
  // In place is safe: a round of lanes writes at or before what it reads.
  for (int64_t first = 0; first < end; first += WarpGroup::kLanes * N) {
    const int64_t col = first + mine;
    float x[N] = {};
    if (seen.any_of<N>(col)) {
      load_seen(scores, col, seen, x);
      for (int i = 0; i < N; ++i) x[i] = exp_of(x[i] - log_sum_exp);
    }
    __syncwarp();
    if (col < end) store_rounded(probabilities + col, x);
  }
}

// dO and O of the chunk: row r's head starts at the token's row and is head_dim columns wide.
template <class T>
struct OutputRows {
  const T *out, *d_out;  // for the chunk's first pair
  int64_t out_stride, d_out_stride;
  int64_t heads;  // per sequence in this chunk
  int64_t head_dim;

  // delta = sum_d dO_d O_d, the mean of dP under P.
  __device__ float delta(const WarpGroup& group, int64_t row, int64_t tokens) const {
    const int64_t pair = row / tokens;
    const int64_t token = pair / heads * tokens + row % tokens, col = pair % heads * head_dim;
    const T *o = out + token * out_stride + col, *d = d_out + token * d_out_stride + col;
    return group.sum(head_dim, [&](int64_t i) { return to_float(o[i]) * to_float(d[i]); });
  }
};

// Replaces S by P = exp(S - log_sum_exp) and dP by dS = P (dP - delta).
template <class T>
__global__ void __launch_bounds__(kThreadsPerBlock)
    score_gradients_kernel(ScoreRows r, float* d_scores, OutputRows<T> outputs) {
  const int64_t row = row_of_this_warp();
  if (row >= r.rows) return;
  constexpr int N = kPack<T>;
  const WarpGroup group;
  const SeenKeys seen = r.seen(row);
  const int64_t end = band_end(seen.last, r.tokens);
  const float *scores = r.scores_of(row), *d_probabilities = d_scores + row * r.stride;
  T* probabilities_out = reinterpret_cast<T*>(r.scores_of(row));
  T* d_scores_out = reinterpret_cast<T*>(d_scores + row * r.stride);
  const float delta = outputs.delta(group, row, r.tokens), log_sum_exp = r.log_sum_exp_of(row);
  for (int64_t first = 0; first < end; first += WarpGroup::kLanes * N) {
    const int64_t col = first + group.lane() * N;
    float p[N] = {}, d[N] = {};
    if (seen.any_of<N>(col)) {
      load_seen(scores, col, seen, p);
      load_floats(d_probabilities + col, d);
      for (int i = 0; i < N; ++i) {
        p[i] = exp_of(p[i] - log_sum_exp);
        d[i] = p[i] * (d[i] - delta);
      }
      // dP after the diagonal is arbitrary, possibly not finite.
      if (!seen.all_of<N>(col))
        for (int i = 0; i < N; ++i) d[i] = seen.contains(col + i) ? d[i] : 0.0f;
    }
    __syncwarp();
    if (col < end) {
      store_rounded(probabilities_out + col, p);
      store_rounded(d_scores_out + col, d);
    }
  }
}

// Per-reader gradients of keys or values, to be summed.
template <class T>
struct ReaderSums {
  const float* parts;                   // [sequences, heads, tokens, head_dim]
  T* target;                            // for the chunk's first sequence and key/value head
  int64_t sequence_step, token_stride;  // of target
  int64_t sequences, key_value_heads, readers, tokens, head_dim;

  [[nodiscard]] __host__ __device__ int64_t elements() const {
    return sequences * key_value_heads * tokens * head_dim;
  }
  __device__ void operator()(int64_t i) const {
    const int64_t d = i % head_dim, token = i / head_dim % tokens,
                  head = i / (head_dim * tokens) % key_value_heads,
                  sequence = i / (head_dim * tokens * key_value_heads);
    const int64_t first = (sequence * key_value_heads + head) * readers;
    float sum = 0.0f;
    for (int64_t reader = first; reader < first + readers; ++reader)
      sum += parts[(reader * tokens + token) * head_dim + d];
    target[sequence * sequence_step + token * token_stride + head * head_dim + d] =
        from_float<T>(sum);
  }
};

template <class T>
__global__ void __launch_bounds__(kThreadsPerBlock) sum_readers_kernel(ReaderSums<T> sums) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < sums.elements()) sums(i);
}

inline LaunchShape warp_per_row(int64_t rows, cudaStream_t stream) {
  constexpr int64_t kRowsPerBlock = kThreadsPerBlock / WarpGroup::kLanes;
  return {.blocks = (rows + kRowsPerBlock - 1) / kRowsPerBlock,
          .threads = kThreadsPerBlock,
          .stream = stream};
}

}  // namespace mpt
