#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include <omp.h>

#include "core/bf16.h"
#include "core/check.h"
#include "core/prefetch.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/gemm_kernel.h"
#include "device/cpu/gemm_packing.h"
#include "device/cpu/row_vector.h"

namespace mpt {
namespace {

constexpr int64_t kTile = 64;  // queries and keys per tile: a multiple of kTileColumns
constexpr float kPaddedLse =
    1e30f;  // log-sum-exp of rows beyond T: their probabilities become exactly 0

// A score that counts for nothing beside any other, but is a number: a query may see no key of the
// first tiles, and what these leave is multiplied by 0 as soon as it sees one.
constexpr float kUnseen = std::numeric_limits<float>::lowest();

// Sizes with T padded to whole tiles and D to whole vectors; padding is zero and never stored.
struct Padded {
  int64_t tokens, dim;
  explicit Padded(const AttentionShape& s)
      : tokens(align_up(s.seq_len, kTile)), dim(align_up(s.head_dim, kTileColumns)) {}
  [[nodiscard]] int64_t matrix() const { return tokens * dim; }
  [[nodiscard]] int64_t tile_rows() const { return kTile * dim; }
};

// One head's slice of a [B T, ...] tensor.
template <class T>
struct HeadSlice {
  T* data;
  int64_t stride;
};

// A query head of a sequence; `row` is its row among all heads of all sequences.
struct QueryHead {
  int64_t sequence, head, row;
  static QueryHead of(const AttentionShape& s, int64_t row) {
    return {row / s.heads, row % s.heads, row};
  }
};

template <class T>
HeadSlice<T> head_slice(const Tensor& t, const AttentionShape& s, const QueryHead& of,
                        QkvPart part = QkvPart::kQ) {
  const int64_t head = part == QkvPart::kQ ? of.head : of.head / s.readers();
  return {
      t.as<T>() + of.sequence * s.seq_len * t.stride + first_column(s, part) + head * s.head_dim,
      t.stride};
}

// Prefetches a row of a head: rows are too far apart for the hardware prefetcher.
template <Use kUse, class T>
MPT_ALWAYS_INLINE inline void prefetch_row(const HeadSlice<T>& slice, int64_t row,
                                           const AttentionShape& s) {
  if (row >= s.seq_len) return;
  prefetch<kUse, Cache::kSecond>(slice.data + row * slice.stride, s.head_dim * int64_t(sizeof(T)));
}

// Rows [first, first + rows) of source[T, D] times scale, zero padded: target[rows, Dp].
template <class T>
void pack_rows(HeadSlice<T> source, int64_t first, int64_t rows, const AttentionShape& s,
               float scale, float* target) {
  const Padded p(s);
  const int64_t there = std::clamp<int64_t>(s.seq_len - first, 0, rows);
  for (int64_t r = 0; r < there; ++r) {
    const T* from = source.data + (first + r) * source.stride;
    float* row = target + r * p.dim;
#pragma omp simd
    for (int64_t d = 0; d < s.head_dim; ++d) row[d] = scale * to_float(from[d]);
    for (int64_t d = s.head_dim; d < p.dim; ++d) row[d] = 0.0f;
  }
  std::fill(target + there * p.dim, target + rows * p.dim, 0.0f);
}

// A tile of rows of source[T, D], transposed and zero padded: target[Dp][kTile].
template <class T>
void pack_tile_transposed(HeadSlice<T> source, int64_t first, const AttentionShape& s,
                          float* target) {
  const Padded p(s);
  for (int64_t r = 0; r < kTile; r += kBlock)
    for (int64_t d = 0; d < p.dim; d += kBlock) {
      const int64_t height = std::clamp<int64_t>(s.seq_len - first - r, 0, kBlock),
                    width = std::clamp<int64_t>(s.head_dim - d, 0, kBlock);
      transpose_block(
          source.data + (first + r) * source.stride + d, source.stride, height, width,
          [](T x) { return to_float(x); }, target + d * kTile + r, kTile);
    }
}

template <class T>
void store_rows(const float* source, int64_t first, int64_t rows, const AttentionShape& s,
                float scale, HeadSlice<T> target) {
  const Padded p(s);
  for (int64_t r = 0; r < std::min(rows, s.seq_len - first); ++r) {
    T* row = target.data + (first + r) * target.stride;
#pragma omp simd
    for (int64_t d = 0; d < s.head_dim; ++d) row[d] = from_float<T>(scale * source[r * p.dim + d]);
  }
}

// Calls f<kColumns>(row) for every group of rows of a tile that needs kColumns columns: in a
// diagonal tile the columns after those are not needed.
template <class F>
void for_row_groups(bool diagonal, const F& f) {
  static_assert(kTile == 4 * kTileColumns);
  for (int64_t row = 0; row < kTile; row += kTileColumns) {
    const int64_t columns = diagonal ? row + kTileColumns : kTile;
    if (columns == 16) f.template operator()<16>(row);
    if (columns == 32) f.template operator()<32>(row);
    if (columns == 48) f.template operator()<48>(row);
    if (columns == 64) f.template operator()<64>(row);
  }
}

// Sets the elements above the diagonal to `value`, within the vectors that are used.
void fill_above_diagonal(float* tile, float value) {
  for (int64_t r = 0; r < kTile; ++r)
    std::fill(tile + r * kTile + r + 1, tile + r * kTile + align_up(r + 1, kTileColumns), value);
}

// What the queries of a sequence see.
class SeenKeys {
 public:
  // `beginnings`: of all sequences, or none.
  SeenKeys(const Tensor& beginnings, const AttentionShape& s, int64_t sequence)
      : begin_(beginnings.data == nullptr ? nullptr
                                          : beginnings.as<int32_t>() + sequence * s.seq_len),
        tokens_(s.seq_len) {}

  // The first key tile that queries from q on see: documents never begin earlier for later ones.
  [[nodiscard]] int64_t first_tile(int64_t q) const {
    return begin_ == nullptr ? 0 : begin_[q] / kTile * kTile;
  }
  // Sets the scores of keys before each query's document to `value`, in the tile of q and k.
  void fill_before_documents(float* scores, int64_t q, int64_t k, float value) const {
    if (begin_ == nullptr) return;
    for (int64_t r = std::min(kTile, tokens_ - q) - 1; r >= 0 && begin_[q + r] > k; --r)
      std::fill_n(scores + r * kTile, std::min(begin_[q + r] - k, kTile), value);
  }

 private:
  const int32_t* begin_;
  int64_t tokens_;
};

// A few rows of a tile, kColumns wide: enough to hide latency, few enough for the registers.
template <int kColumns>
struct Rows {
  static constexpr int kInRow = kColumns / kTileLanes, kTogether = kTileRegisters / 4,
                       kRows = std::max(kTogether / kInRow, 1), kAll = kRows * kInRow;
  static int64_t at(int i) { return i / kInRow * kTile + i % kInRow * kTileLanes; }
  static RowVectors<kAll> load(const float* tile) {
    return RowVectors<kAll>::of_each([&](int i) { return tile_vector_at(tile + at(i)); });
  }
  // Broadcasts one number per row.
  static RowVectors<kAll> each(const float* numbers) {
    return RowVectors<kAll>::of_each([&](int i) { return RowVector{} + numbers[i / kInRow]; });
  }
  // Stores the columns and zeros after them.
  static void store(const RowVectors<kAll>& x, float* tile) {
#pragma GCC unroll 16
    for (int i = 0; i < kAll; ++i) tile_vector_at(tile + at(i)) = x.part[i];
    for (int row = 0; row < kRows; ++row)
      std::fill(tile + row * kTile + kColumns, tile + (row + 1) * kTile, 0.0f);
  }
  // Reduces a row by f.
  template <class F>
  static float folded(const RowVectors<kAll>& x, int row, const F& f) {
    constexpr int kParts = kTileColumns / kTileLanes;
    RowVector columns[kParts];
    for (int i = 0; i < kParts; ++i) {
      columns[i] = x.part[row * kInRow + i];
      for (int v = i + kParts; v < kInRow; v += kParts)
        columns[i] = f(columns[i], x.part[row * kInRow + v]);
    }
    return mpt::folded(columns, f);
  }
};

// Online softmax of a tile of scores: replaces scores by probabilities relative to each row's new
// maximum, and rescales the sums and the outputs [kTile, dim] accumulated so far; the first tile
// has none. Calls on_diagonal(row) for every row of a diagonal tile.
template <class F>
void softmax_tile(float* scores, bool diagonal, bool first, float* maximum, float* sum, float* out,
                  int64_t dim, const F& on_diagonal) {
  float top[kTile], rescale[kTile], added[kTile];
  for_row_groups(diagonal, [&]<int kColumns>(int64_t begin) {
    using R = Rows<kColumns>;
    for (int64_t r = begin; r < begin + kTileColumns; r += R::kRows) {
      const auto x = R::load(scores + r * kTile);
      for (int i = 0; i < R::kRows; ++i)
        top[r + i] = max_of(maximum[r + i], R::folded(x, i, larger));
    }
    for (int64_t r = begin; r < begin + kTileColumns; r += R::kRows) {
      for (int i = 0; diagonal && i < R::kRows; ++i) on_diagonal(r + i);
      const auto e = softmax_exp(R::load(scores + r * kTile) - R::each(top + r));
      R::store(e, scores + r * kTile);
      for (int i = 0; i < R::kRows; ++i) added[r + i] = R::folded(e, i, mpt::sum);
    }
  });
#pragma omp simd
  for (int64_t r = 0; r < kTile; ++r) {
    rescale[r] = exp_of(maximum[r] - top[r]);
    sum[r] = std::fma(sum[r], rescale[r], added[r]);
    maximum[r] = top[r];
  }
  for (int64_t r = 0; !first && r < kTile; ++r) {
#pragma omp simd
    for (int64_t d = 0; d < dim; ++d) out[r * dim + d] *= rescale[r];
  }
}

// C (+)= A B; the first GEMM of a sum overwrites C, so C need not be zeroed.
void add_tile_gemm(bool first, const TileGemm& gemm) {
  tile_gemm(first ? Accumulate::kNo : Accumulate::kYes, gemm);
}

struct ForwardScratch {
  float *keys_t, *values;         // of all tokens
  float *queries, *out, *scores;  // of a tile
  static int64_t size(const Padded& p) {
    return 2 * p.matrix() + 2 * p.tile_rows() + kTile * kTile;
  }
  ForwardScratch(float* base, const Padded& p) {
    keys_t = base;
    values = keys_t + p.matrix();
    queries = values + p.matrix();
    out = queries + p.tile_rows();
    scores = out + p.tile_rows();
  }
};

template <class T>
void forward_head(const AttentionForward& call, int64_t task, float* scratch) {
  const AttentionShape& s = call.shape;
  const Padded p(s);
  const ForwardScratch w(scratch, p);
  const QueryHead head = QueryHead::of(s, task);
  const float scale = 1.0f / std::sqrt(float(s.head_dim));
  const HeadSlice<T> queries = head_slice<T>(call.qkv, s, head),
                     keys = head_slice<T>(call.qkv, s, head, QkvPart::kK);
  for (int64_t k = 0; k < s.seq_len; k += kTile)
    pack_tile_transposed(keys, k, s, w.keys_t + k * p.dim);
  pack_rows(head_slice<T>(call.qkv, s, head, QkvPart::kV), 0, p.tokens, s, 1.0f, w.values);
  const HeadSlice<T> target = head_slice<T>(call.out, s, head);
  float* log_sum_exp = call.log_sum_exp.as<float>() + head.row * call.log_sum_exp.stride;
  const SeenKeys seen(call.document_begin, s, head.sequence);
  for (int64_t q = 0; q < s.seq_len; q += kTile) {
    float maximum[kTile], sum[kTile] = {};
    std::fill_n(maximum, kTile, -INFINITY);
    pack_rows(queries, q, kTile, s, scale, w.queries);
    const int64_t first_tile = seen.first_tile(q);
    for (int64_t k = first_tile; k <= q; k += kTile) {
      const bool diagonal = k == q, first = k == first_tile;
      tile_gemm(Accumulate::kNo, {.m = kTile,
                                  .n = kTile,
                                  .k = p.dim,
                                  .a = {w.queries, p.dim, 1},
                                  .b = w.keys_t + k * p.dim,
                                  .ldb = kTile,
                                  .c = w.scores,
                                  .ldc = kTile,
                                  .causal = diagonal ? Causal::kOutput : Causal::kNo});
      if (diagonal) fill_above_diagonal(w.scores, -INFINITY);
      seen.fill_before_documents(w.scores, q, k, kUnseen);
      softmax_tile(w.scores, diagonal, first, maximum, sum, w.out, p.dim,
                   [&](int64_t r) MPT_ALWAYS_INLINE {
                     prefetch_row<Use::kWrite>(target, q + r, s);
                     prefetch_row<Use::kRead>(queries, q + kTile + r, s);
                   });
      add_tile_gemm(first, {.m = kTile,
                            .n = p.dim,
                            .k = kTile,
                            .a = {w.scores, kTile, 1},
                            .b = w.values + k * p.dim,
                            .ldb = p.dim,
                            .c = w.out,
                            .ldc = p.dim,
                            .causal = diagonal ? Causal::kUpToRow : Causal::kNo});
    }
    for (int64_t r = 0; r < kTile && q + r < s.seq_len; ++r) {
      log_sum_exp[q + r] = maximum[r] + std::log(sum[r]);
      store_rows(w.out + r * p.dim, q + r, 1, s, 1.0f / sum[r], target);
    }
  }
}

struct BackwardScratch {
  float *queries, *d_out, *d_queries, *log_sum_exp, *delta;    // of all tokens
  float *keys, *keys_t, *values_t, *probabilities, *d_scores;  // of a tile
  // Of a tile where one query head reads the keys; with several, of all tokens, for their sum.
  float *d_keys, *d_values;

  // Elements of d_keys, and of d_values.
  static int64_t summed(const AttentionShape& s, const Padded& p) {
    return s.readers() == 1 ? p.tile_rows() : p.matrix();
  }
  static int64_t size(const AttentionShape& s, const Padded& p) {
    return 3 * p.matrix() + 2 * p.tokens + 3 * p.tile_rows() + 2 * kTile * kTile + 2 * summed(s, p);
  }
  BackwardScratch(float* base, const AttentionShape& s, const Padded& p) {
    const auto take = [&base](int64_t n) {
      float* part = base;
      base += n;
      return part;
    };
    for (float** matrix : {&queries, &d_out, &d_queries}) *matrix = take(p.matrix());
    for (float** column : {&log_sum_exp, &delta}) *column = take(p.tokens);
    for (float** rows : {&keys, &keys_t, &values_t}) *rows = take(p.tile_rows());
    for (float** sum : {&d_keys, &d_values}) *sum = take(summed(s, p));
    for (float** tile : {&probabilities, &d_scores}) *tile = take(kTile * kTile);
  }
};

// The order of a simd reduction depends on the width of vectors: a package, whose levels have the
// same bits, adds in the order of the terms.
#if defined(MPT_PORTABLE_BITS)
#define MPT_SUM_INTO_DELTA
#else
#define MPT_SUM_INTO_DELTA _Pragma("omp simd reduction(+ : delta)")
#endif

// delta_i = sum_d dO_id O_id, the mean of dP under P in row i.
template <class T>
void row_deltas(const AttentionBackward& call, const QueryHead& head, const BackwardScratch& w) {
  const AttentionShape& s = call.shape;
  const Padded p(s);
  const HeadSlice<T> out = head_slice<T>(call.out, s, head);
  const float* lse = call.log_sum_exp.as<float>() + head.row * call.log_sum_exp.stride;
  for (int64_t t = 0; t < p.tokens; ++t) {
    float delta = 0.0f;
    const int64_t dims = t < s.seq_len ? s.head_dim : 0;
    MPT_SUM_INTO_DELTA
    for (int64_t d = 0; d < dims; ++d)
      delta += w.d_out[t * p.dim + d] * to_float(out.data[t * out.stride + d]);
    w.delta[t] = delta;
    w.log_sum_exp[t] = t < s.seq_len ? lse[t] : kPaddedLse;
  }
}

// Replaces S by P = exp(S - lse) and dP by dS = P (dP - delta). Calls on_diagonal(row) for every
// row of a diagonal tile.
template <class F>
void score_gradients(const BackwardScratch& w, int64_t q, bool diagonal, const F& on_diagonal) {
  for_row_groups(diagonal, [&]<int kColumns>(int64_t begin) {
    using R = Rows<kColumns>;
    for (int64_t r = begin; r < begin + kTileColumns; r += R::kRows) {
      for (int i = 0; diagonal && i < R::kRows; ++i) on_diagonal(r + i);
      float *p = w.probabilities + r * kTile, *d = w.d_scores + r * kTile;
      const auto e = softmax_exp(R::load(p) - R::each(w.log_sum_exp + q + r));
      R::store(e, p);
      R::store(e * (R::load(d) - R::each(w.delta + q + r)), d);
    }
  });
}

// Where the gradients of a tile of keys and values are summed, and whether nothing is there yet.
struct KeySums {
  float *d_keys, *d_values;
  bool empty;
};

struct TilePlace {
  int64_t q, k;  // first query and first key
};

// All gradient contributions between a tile of queries and one of keys.
template <class F>
void backward_tile(const BackwardScratch& w, const KeySums& sums, const SeenKeys& seen,
                   const Padded& p, TilePlace at, const F& on_diagonal) {
  const auto [q, k] = at;
  const bool diagonal = k == q;
  // scores[kTile, kTile] = rows[kTile, D] columns[D, kTile], these of the keys
  const auto scores_of = [&](const float* rows, const float* columns, float* scores) {
    tile_gemm(Accumulate::kNo, {.m = kTile,
                                .n = kTile,
                                .k = p.dim,
                                .a = {rows, p.dim, 1},
                                .b = columns,
                                .ldb = kTile,
                                .c = scores,
                                .ldc = kTile,
                                .causal = diagonal ? Causal::kOutput : Causal::kNo});
  };
  // sum[kTile, D] += scores[kTile, kTile] rows[kTile, D]
  const auto add_gemm = [&](bool first, const TileA& scores, Causal part, const float* rows,
                            float* sum) {
    add_tile_gemm(first, {.m = kTile,
                          .n = p.dim,
                          .k = kTile,
                          .a = scores,
                          .b = rows,
                          .ldb = p.dim,
                          .c = sum,
                          .ldc = p.dim,
                          .causal = diagonal ? part : Causal::kNo});
  };
  const float *queries = w.queries + q * p.dim, *d_out = w.d_out + q * p.dim;
  scores_of(queries, w.keys_t, w.probabilities);
  scores_of(d_out, w.values_t, w.d_scores);
  if (diagonal) {
    fill_above_diagonal(w.probabilities, -INFINITY);
    fill_above_diagonal(w.d_scores, 0.0f);
  }
  seen.fill_before_documents(w.probabilities, q, k, kUnseen);
  score_gradients(w, q, diagonal, on_diagonal);
  const bool first = diagonal && sums.empty;
  add_gemm(first, {w.probabilities, 1, kTile}, Causal::kFromRowOn, d_out, sums.d_values);
  add_gemm(k == seen.first_tile(q), {w.d_scores, kTile, 1}, Causal::kUpToRow, w.keys,
           w.d_queries + q * p.dim);
  add_gemm(first, {w.d_scores, 1, kTile}, Causal::kFromRowOn, queries, sums.d_keys);
}

// The gradients of a query head, and its part in those of its keys and values; the last of their
// readers stores these.
template <class T>
void backward_head(const AttentionBackward& call, const QueryHead& head, const BackwardScratch& w) {
  const AttentionShape& s = call.shape;
  const Padded p(s);
  const int64_t reader = head.head % s.readers();
  const float scale = 1.0f / std::sqrt(float(s.head_dim));
  const HeadSlice<T> keys = head_slice<T>(call.qkv, s, head, QkvPart::kK),
                     values = head_slice<T>(call.qkv, s, head, QkvPart::kV);
  pack_rows(head_slice<T>(call.qkv, s, head), 0, p.tokens, s, scale, w.queries);
  pack_rows(head_slice<T>(call.d_out, s, head), 0, p.tokens, s, 1.0f, w.d_out);
  row_deltas<T>(call, head, w);
  const SeenKeys seen(call.document_begin, s, head.sequence);
  const HeadSlice<T> d_queries = head_slice<T>(call.d_qkv, s, head),
                     d_keys = head_slice<T>(call.d_qkv, s, head, QkvPart::kK),
                     d_values = head_slice<T>(call.d_qkv, s, head, QkvPart::kV);
  for (int64_t k = 0; k < s.seq_len; k += kTile) {
    const int64_t place = s.readers() == 1 ? 0 : k * p.dim;
    const KeySums sums{w.d_keys + place, w.d_values + place, reader == 0};
    pack_rows(keys, k, kTile, s, 1.0f, w.keys);
    pack_tile_transposed(keys, k, s, w.keys_t);
    pack_tile_transposed(values, k, s, w.values_t);
    for (int64_t q = k; q < s.seq_len && seen.first_tile(q) <= k; q += kTile)
      backward_tile(w, sums, seen, p, {q, k}, [&](int64_t r) MPT_ALWAYS_INLINE {
        for (const auto& target : {d_queries, d_keys, d_values})
          prefetch_row<Use::kWrite>(target, k + r, s);
      });
    store_rows(w.d_queries + k * p.dim, k, kTile, s, scale, d_queries);
    if (reader != s.readers() - 1) continue;
    store_rows(sums.d_keys, k, kTile, s, 1.0f, d_keys);
    store_rows(sums.d_values, k, kTile, s, 1.0f, d_values);
  }
}

// All query heads that read a head of keys and values.
template <class T>
void backward_readers(const AttentionBackward& call, int64_t task, float* scratch) {
  const AttentionShape& s = call.shape;
  const BackwardScratch w(scratch, s, Padded(s));
  for (int64_t row = task * s.readers(); row < (task + 1) * s.readers(); ++row)
    backward_head<T>(call, QueryHead::of(s, row), w);
}

int64_t floats_per_thread(const AttentionShape& shape) {
  const Padded p(shape);
  return align_up(std::max(ForwardScratch::size(p), BackwardScratch::size(shape, p)),
                  kAlignment / 4);
}

// Calls f(task) for every sequence and each of its `heads`. If there are enough for all threads,
// each takes consecutive heads of a sequence, because they share pages and cache lines at their
// edges.
template <class F>
void for_each_head(const AttentionShape& shape, int64_t heads, const F& f) {
  const int64_t tasks = shape.batch * heads;
  const int64_t together =
      std::clamp<int64_t>(tasks / (int64_t{2} * omp_get_max_threads()), 1, heads);
#pragma omp parallel for schedule(dynamic, together)
  for (int64_t task = 0; task < tasks; ++task) f(task);
}

}  // namespace

void CpuAttention::reserve(Allocator& allocator, const AttentionShape& shape, DType /*storage*/) {
  scratch_.reserve(allocator, threads_ * floats_per_thread(shape) * 4);
}

void CpuAttention::check_reserved(const AttentionShape& shape) const {
  const int64_t needed = threads_ * floats_per_thread(shape) * 4;
  check(needed <= scratch_.bytes(),
        "attention over {} tokens needs {} bytes of scratch, reserved {}", shape.seq_len, needed,
        scratch_.bytes());
  check(omp_get_max_threads() <= threads_, "attention with {} threads, but scratch reserved for {}",
        omp_get_max_threads(), threads_);
}

float* CpuAttention::scratch_of_thread(const AttentionShape& shape) const {
  return scratch_.floats() + omp_get_thread_num() * floats_per_thread(shape);
}

void CpuAttention::forward(const AttentionForward& call) {
  check_shapes(call);
  check_reserved(call.shape);
  const auto head = call.qkv.dtype == DType::kF32 ? forward_head<float> : forward_head<bf16>;
  for_each_head(call.shape, call.shape.heads,
                [&](int64_t task) { head(call, task, scratch_of_thread(call.shape)); });
}

void CpuAttention::backward(const AttentionBackward& call) {
  check_shapes(call);
  check_reserved(call.shape);
  const auto readers =
      call.qkv.dtype == DType::kF32 ? backward_readers<float> : backward_readers<bf16>;
  for_each_head(call.shape, call.shape.key_value_heads,
                [&](int64_t task) { readers(call, task, scratch_of_thread(call.shape)); });
}

}  // namespace mpt
