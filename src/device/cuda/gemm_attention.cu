#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/bf16.h"
#include "core/check.h"
#include "device/cuda/cuda_attention.h"
#include "device/cuda/cuda_exec.cuh"

namespace mpt {
namespace {

// --- kernels: a warp per row of scores -----------------------------------------------------------

constexpr int64_t kAccess = 16;  // bytes per access of a lane
// Elements per lane and step: one access of the storage type.
template <class T>
constexpr int kPack = kAccess / int(sizeof(T));

// Uses memcpy, because the same memory holds fp32 scores first and probabilities of the storage
// type later.
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
      scores;  // [rows, stride], scaled; replaced by probabilities of the storage type, at the row's start
  int64_t rows, tokens, stride;
  float* log_sum_exp;  // of the chunk's first pair
  int64_t log_sum_exp_stride;
  const int32_t* document_begin;  // of the chunk's first sequence; null: every row is one document
  int64_t heads;                  // per sequence in this chunk

  [[nodiscard]] __device__ int64_t token(int64_t row) const { return row % tokens; }
  // The keys that a row sees: from where its document begins to its own token.
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
__device__ int64_t band_end(int64_t token, int64_t tokens) {
  return min_of((token / GemmAttention::kBand + 1) * GemmAttention::kBand, tokens);
}

__device__ int64_t row_of_this_warp() {
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
  // The logarithm of the whole row's sum of exponentials, in every lane.
  __device__ float log_sum_exp(const WarpGroup& group) const {
    const float highest = group.reduce_max(top);
    const float mine = sum * exp_of(top - highest);
    return highest + logf(group.sum(WarpGroup::kLanes, [&](int64_t) { return mine; }));
  }
};

// Loads N scores from column `col` on; those of keys that are not seen become -inf, so their
// exponentials are 0.
template <int N>
__device__ void load_seen(const float* scores, int64_t col, const SeenKeys& seen, float (&x)[N]) {
  load_floats(scores + col, x);
  if (!seen.all_of<N>(col))
    for (int i = 0; i < N; ++i) x[i] = seen.contains(col + i) ? x[i] : -INFINITY;
}

// The first column of the round of a warp's lanes in which the seen keys begin.
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

// dO and O of the chunk: row r's head starts at the token's row, head_dim columns wide.
template <class T>
struct OutputRows {
  const T *out, *d_out;  // of the chunk's first pair
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

// Gradients of keys or values that each of their readers left, to be summed.
template <class T>
struct ReaderSums {
  const float* parts;                   // [sequences, heads, tokens, head_dim]
  T* target;                            // of the chunk's first sequence and head of keys
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

LaunchShape warp_per_row(int64_t rows, cudaStream_t stream) {
  constexpr int64_t kRowsPerBlock = kThreadsPerBlock / WarpGroup::kLanes;
  return {.blocks = (rows + kRowsPerBlock - 1) / kRowsPerBlock,
          .threads = kThreadsPerBlock,
          .stream = stream};
}

// --- GEMMs over the pairs of a chunk -------------------------------------------------------------

// Consecutive pairs: some heads of one sequence, or all heads of some sequences. With each head of
// keys come all that read it.
struct Chunk {
  int64_t sequence, sequences, head, heads;
  [[nodiscard]] int64_t pairs() const { return sequences * heads; }
};

// One matrix per pair: the first pair's, and the distances to the next sequence's and head's. Pairs
// with the same keys share theirs.
struct PairMatrices {
  Tensor first;
  int64_t sequence_step, head_step;  // elements
  int64_t readers = 1;               // neighbouring heads that share a matrix

  [[nodiscard]] PairMatrices block(int64_t row, int64_t rows, int64_t col, int64_t cols) const {
    return {first.row_range(row, rows).columns(col, cols), sequence_step, head_step, readers};
  }
  [[nodiscard]] PairMatrices rows(int64_t row, int64_t count) const {
    return block(row, count, 0, first.cols);
  }
  [[nodiscard]] Tensor of(int64_t sequence, int64_t head) const {
    Tensor one = first;
    one.data += (sequence * sequence_step + head / readers * head_step) * size_of(first.dtype);
    return one;
  }
};

struct PairGemm {
  PairMatrices a, b, d;
  Transpose transpose_a = Transpose::kNo;
  Transpose transpose_b = Transpose::kNo;
  float alpha = 1.0f;
};

// Row stride of a score matrix in fp32 elements: whole accesses of either type.
int64_t score_stride(const AttentionShape& s) { return align_up(s.seq_len, kPack<bf16>); }
int64_t matrix_bytes(const AttentionShape& s) { return s.seq_len * score_stride(s) * 4; }
// The gradient of the keys, and later of the values, that a pair leaves to be summed.
int64_t part_bytes(const AttentionShape& s) {
  return s.readers() == 1 ? 0 : align_up(s.seq_len * s.head_dim * 4, kAccess);
}
// Scores and their gradients, and that part.
int64_t pair_bytes(const AttentionShape& s) { return 2 * matrix_bytes(s) + part_bytes(s); }

struct ChunkScratch {
  void* workspace;  // of the GEMMs
  float* matrices;
};

class ChunkWork {
 public:
  ChunkWork(StridedGemm& gemm, const ChunkScratch& scratch, const AttentionShape& shape,
            const Chunk& chunk)
      : gemm_(gemm), scratch_(scratch), shape_(shape), chunk_(chunk) {}

  // A part of qkv, or of a tensor with the columns of its first part: [T, D] of every pair.
  [[nodiscard]] PairMatrices tokens(const Tensor& t, QkvPart part = QkvPart::kQ) const {
    const int64_t readers = part == QkvPart::kQ ? 1 : shape_.readers();
    const Tensor sequence = t.row_range(chunk_.sequence * shape_.seq_len, shape_.seq_len);
    const int64_t column = first_column(shape_, part) + chunk_.head / readers * shape_.head_dim;
    return {sequence.columns(column, shape_.head_dim), shape_.seq_len * t.stride, shape_.head_dim,
            readers};
  }
  // [T, T] of every pair, as GEMMs write it (fp32) or read it (in the storage type).
  [[nodiscard]] PairMatrices scores(DType dtype) const { return square(scratch_.matrices, dtype); }
  [[nodiscard]] PairMatrices d_scores(DType dtype) const {
    return square(scratch_.matrices + chunk_.pairs() * matrix_bytes(shape_) / 4, dtype);
  }
  // [T, D] of every pair, fp32.
  [[nodiscard]] PairMatrices parts() const {
    const int64_t elements = part_bytes(shape_) / 4;
    float* const data = scratch_.matrices + chunk_.pairs() * 2 * matrix_bytes(shape_) / 4;
    return {{reinterpret_cast<std::byte*>(data), DType::kF32, shape_.seq_len, shape_.head_dim,
             shape_.head_dim},
            chunk_.heads * elements,
            elements};
  }
  // Sums parts() over the readers of each head of keys, to a part of d_qkv.
  template <class T>
  [[nodiscard]] ReaderSums<T> reader_sums(const Tensor& d_qkv, QkvPart part) const {
    return {.parts = parts().first.as<float>(),
            .target = tokens(d_qkv, part).first.as<T>(),
            .sequence_step = shape_.seq_len * d_qkv.stride,
            .token_stride = d_qkv.stride,
            .sequences = chunk_.sequences,
            .key_value_heads = chunk_.heads / shape_.readers(),
            .readers = shape_.readers(),
            .tokens = shape_.seq_len,
            .head_dim = shape_.head_dim};
  }
  [[nodiscard]] ScoreRows score_rows(const Tensor& log_sum_exp,
                                     const Tensor& document_begin) const {
    const int64_t pair = chunk_.sequence * shape_.heads + chunk_.head;
    return {.scores = scratch_.matrices,
            .rows = chunk_.pairs() * shape_.seq_len,
            .tokens = shape_.seq_len,
            .stride = score_stride(shape_),
            .log_sum_exp = log_sum_exp.as<float>() + pair * log_sum_exp.stride,
            .log_sum_exp_stride = log_sum_exp.stride,
            .document_begin = document_begin.data == nullptr
                                  ? nullptr
                                  : document_begin.as<int32_t>() + chunk_.sequence * shape_.seq_len,
            .heads = chunk_.heads};
  }

  // One call per head, or per sequence and reader, whichever is fewer.
  void multiply(const PairGemm& gemm) const {
    const int64_t readers = shape_.readers();
    const bool by_sequence = chunk_.sequences * readers <= chunk_.heads;
    const int64_t calls = by_sequence ? chunk_.sequences * readers : chunk_.heads;
    // One reader of each head of keys: these are `readers` heads apart.
    const auto batch = [&](const PairMatrices& m, int64_t call) -> StridedBatch {
      return by_sequence ? StridedBatch{m.of(call / readers, call % readers),
                                        readers / m.readers * m.head_step}
                         : StridedBatch{m.of(0, call), m.sequence_step};
    };
    for (int64_t call = 0; call < calls; ++call)
      gemm_.run({.count = chunk_.pairs() / calls,
                 .a = batch(gemm.a, call),
                 .b = batch(gemm.b, call),
                 .d = batch(gemm.d, call),
                 .transpose_a = gemm.transpose_a,
                 .transpose_b = gemm.transpose_b,
                 .alpha = gemm.alpha},
                scratch_.workspace);
  }

 private:
  [[nodiscard]] PairMatrices square(float* data, DType dtype) const {
    const int64_t stride = score_stride(shape_) * 4 / size_of(dtype),
                  matrix = shape_.seq_len * stride;
    return {{reinterpret_cast<std::byte*>(data), dtype, shape_.seq_len, shape_.seq_len, stride},
            chunk_.heads * matrix,
            matrix};
  }

  StridedGemm& gemm_;
  ChunkScratch scratch_;
  AttentionShape shape_;
  Chunk chunk_;
};

// Calls f(first token, tokens) for every band.
template <class F>
void for_bands(int64_t tokens, const F& f) {
  for (int64_t first = 0; first < tokens; first += GemmAttention::kBand)
    f(first, std::min(GemmAttention::kBand, tokens - first));
}

bool is_empty(const AttentionShape& s) { return s.batch == 0 || s.heads == 0 || s.seq_len == 0; }

// `pairs_at_once`: at least the readers of one head of keys.
template <class F>
void for_chunks(const AttentionShape& s, int64_t pairs_at_once, const F& f) {
  if (pairs_at_once < s.heads) {
    const int64_t heads = pairs_at_once / s.readers() * s.readers();
    for (int64_t sequence = 0; sequence < s.batch; ++sequence)
      for (int64_t head = 0; head < s.heads; head += heads)
        f(Chunk{sequence, 1, head, std::min(heads, s.heads - head)});
    return;
  }
  const int64_t sequences = pairs_at_once / s.heads;
  for (int64_t sequence = 0; sequence < s.batch; sequence += sequences)
    f(Chunk{sequence, std::min(sequences, s.batch - sequence), 0, s.heads});
}

float score_scale(const AttentionShape& s) { return 1.0f / std::sqrt(float(s.head_dim)); }

// target[T,T] = scale left right^T, up to the end of each row's band.
void multiply_causal(const ChunkWork& work, const PairMatrices& left, const PairMatrices& right,
                     const PairMatrices& target, float scale) {
  for_bands(left.first.rows, [&](int64_t first, int64_t count) {
    work.multiply({.a = left.rows(first, count),
                   .b = right.rows(0, first + count),
                   .d = target.block(first, count, 0, first + count),
                   .transpose_b = Transpose::kYes,
                   .alpha = scale});
  });
}

// target[T,D] = scale lower right: what every query gathers from the keys up to it.
void gather_from_keys(const ChunkWork& work, const PairMatrices& lower, const PairMatrices& right,
                      const PairMatrices& target, float scale) {
  for_bands(target.first.rows, [&](int64_t first, int64_t count) {
    work.multiply({.a = lower.block(first, count, 0, first + count),
                   .b = right.rows(0, first + count),
                   .d = target.rows(first, count),
                   .alpha = scale});
  });
}

// target[T,D] = scale lower^T right: what every key gathers from the queries from it on.
void gather_from_queries(const ChunkWork& work, const PairMatrices& lower,
                         const PairMatrices& right, const PairMatrices& target, float scale) {
  const int64_t tokens = target.first.rows;
  for_bands(tokens, [&](int64_t first, int64_t count) {
    work.multiply({.a = lower.block(first, tokens - first, first, count),
                   .b = right.rows(first, tokens - first),
                   .d = target.rows(first, count),
                   .transpose_a = Transpose::kYes,
                   .alpha = scale});
  });
}

void forward_chunk(const AttentionForward& call, const ChunkWork& work, cudaStream_t stream) {
  const DType dtype = call.qkv.dtype;
  multiply_causal(work, work.tokens(call.qkv), work.tokens(call.qkv, QkvPart::kK),
                  work.scores(DType::kF32), score_scale(call.shape));
  const ScoreRows rows = work.score_rows(call.log_sum_exp, call.document_begin);
  launch(dtype == DType::kF32 ? softmax_kernel<float> : softmax_kernel<bf16>,
         warp_per_row(rows.rows, stream), rows);
  gather_from_keys(work, work.scores(dtype), work.tokens(call.qkv, QkvPart::kV),
                   work.tokens(call.out), 1.0f);
}

template <class T>
void score_gradients(const AttentionBackward& call, const Chunk& chunk, const ChunkWork& work,
                     cudaStream_t stream) {
  const ScoreRows rows = work.score_rows(call.log_sum_exp, call.document_begin);
  const OutputRows<T> outputs{.out = work.tokens(call.out).first.as<T>(),
                              .d_out = work.tokens(call.d_out).first.as<T>(),
                              .out_stride = call.out.stride,
                              .d_out_stride = call.d_out.stride,
                              .heads = chunk.heads,
                              .head_dim = call.shape.head_dim};
  launch(score_gradients_kernel<T>, warp_per_row(rows.rows, stream), rows,
         work.d_scores(DType::kF32).first.as<float>(), outputs);
}

// A gradient of keys or values. Where several heads read them, each leaves its part in FP32.
void gather_for_keys(const AttentionBackward& call, const ChunkWork& work, QkvPart part,
                     const PairMatrices& lower, const PairMatrices& right, float scale,
                     cudaStream_t stream) {
  const bool shared = call.shape.readers() > 1;
  gather_from_queries(work, lower, right, shared ? work.parts() : work.tokens(call.d_qkv, part),
                      scale);
  if (!shared) return;
  const auto sum = [&]<class T>(T) {
    const ReaderSums<T> sums = work.reader_sums<T>(call.d_qkv, part);
    launch(sum_readers_kernel<T>,
           LaunchShape{.blocks = (sums.elements() + kThreadsPerBlock - 1) / kThreadsPerBlock,
                       .threads = kThreadsPerBlock,
                       .stream = stream},
           sums);
  };
  call.qkv.dtype == DType::kF32 ? sum(float{}) : sum(bf16{});
}

void backward_chunk(const AttentionBackward& call, const Chunk& chunk, const ChunkWork& work,
                    cudaStream_t stream) {
  const DType dtype = call.qkv.dtype;
  const float scale = score_scale(call.shape);
  const PairMatrices queries = work.tokens(call.qkv), keys = work.tokens(call.qkv, QkvPart::kK);
  const PairMatrices d_out = work.tokens(call.d_out);
  multiply_causal(work, queries, keys, work.scores(DType::kF32), scale);
  multiply_causal(work, d_out, work.tokens(call.qkv, QkvPart::kV), work.d_scores(DType::kF32),
                  1.0f);
  (dtype == DType::kF32 ? score_gradients<float> : score_gradients<bf16>)(call, chunk, work,
                                                                          stream);
  gather_from_keys(work, work.d_scores(dtype), keys, work.tokens(call.d_qkv), scale);
  gather_for_keys(call, work, QkvPart::kK, work.d_scores(dtype), queries, scale, stream);
  gather_for_keys(call, work, QkvPart::kV, work.scores(dtype), d_out, 1.0f, stream);
}

}  // namespace

GemmAttention::GemmAttention(CUstream_st* stream, const GemmAttentionScratch& most)
    : stream_(stream), most_(most), gemm_(stream, most.workspace) {}

void GemmAttention::reserve(Allocator& allocator, const AttentionShape& shape, DType /*storage*/) {
  const int64_t pair = pair_bytes(shape);
  const int64_t most =
      std::max<int64_t>(most_.matrices / std::max<int64_t>(pair, 1), shape.readers());
  const int64_t pairs = std::min(shape.batch * shape.heads, most);
  scratch_.reserve(allocator, most_.workspace + pairs * pair);
}

int64_t GemmAttention::pairs_at_once(const AttentionShape& shape) const {
  const int64_t pair = pair_bytes(shape), least = shape.readers() * pair;
  const int64_t available = scratch_.bytes() - most_.workspace;
  check(available >= least, "attention over {} tokens needs {} bytes of scratch, reserved {}",
        shape.seq_len, least + most_.workspace, scratch_.bytes());
  return available / pair;
}

void GemmAttention::forward(const AttentionForward& call) {
  check_shapes(call);
  if (is_empty(call.shape)) return;
  const ChunkScratch scratch{scratch_.floats(), scratch_.floats() + most_.workspace / 4};
  for_chunks(call.shape, pairs_at_once(call.shape), [&](const Chunk& chunk) {
    forward_chunk(call, {gemm_, scratch, call.shape, chunk}, stream_);
  });
}

void GemmAttention::backward(const AttentionBackward& call) {
  check_shapes(call);
  if (is_empty(call.shape)) return;
  const ChunkScratch scratch{scratch_.floats(), scratch_.floats() + most_.workspace / 4};
  for_chunks(call.shape, pairs_at_once(call.shape), [&](const Chunk& chunk) {
    backward_chunk(call, chunk, {gemm_, scratch, call.shape, chunk}, stream_);
  });
}

}  // namespace mpt
