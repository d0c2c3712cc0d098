#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

#include <omp.h>

#include "core/bf16.h"
#include "core/check.h"
#include "core/prefetch.h"
#include "device/cpu/attention_numbers.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/row_vector.h"

namespace mpt {
namespace {

constexpr float kPaddedLse =
    1e30f;  // log-sum-exp of rows beyond T: makes their probabilities exactly 0

// A score negligible next to any other, but finite: a query may see no key of the first tiles, and
// what these contribute is multiplied by 0 as soon as it sees one.
constexpr float kUnseen = std::numeric_limits<float>::lowest();

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

float scale_of(const AttentionShape& s) { return 1.0f / std::sqrt(float(s.head_dim)); }

// The first contribution to a sum overwrites it, so it need not be zeroed.
Accumulate adds_unless(bool first) { return first ? Accumulate::kNo : Accumulate::kYes; }

// Prefetches a row of a head: rows are too far apart for the hardware prefetcher.
template <Use kUse, class T>
MPT_ALWAYS_INLINE inline void prefetch_row(const HeadSlice<T>& slice, int64_t row,
                                           const AttentionShape& s) {
  if (row >= s.seq_len) return;
  prefetch<kUse, Cache::kSecond>(slice.data + row * slice.stride, s.head_dim * int64_t(sizeof(T)));
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

// Calls f<kColumns>(row) for every group of rows of a tile that needs kColumns columns: a diagonal
// tile does not need the columns after those.
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

// Sets the elements above the diagonal to `value`, within the vectors used.
void fill_above_diagonal(float* tile, float value) {
  for (int64_t r = 0; r < kTile; ++r)
    std::fill(tile + r * kTile + r + 1, tile + r * kTile + align_up(r + 1, kTileColumns), value);
}

// The keys seen by the queries of a sequence.
class SeenKeys {
 public:
  // `beginnings`: for all sequences, or empty.
  SeenKeys(const Tensor& beginnings, const AttentionShape& s, int64_t sequence)
      : begin_(beginnings.data == nullptr ? nullptr
                                          : beginnings.as<int32_t>() + sequence * s.seq_len),
        tokens_(s.seq_len) {}

  // First key tile seen by queries from q on: documents never begin earlier for later queries.
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

// A few rows of a tile, kColumns wide: enough to hide latency, few enough to fit in registers.
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
  // Stores the columns, followed by zeros.
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
// maximum, and rescales the sums and outputs [kTile, dim] accumulated so far; the first tile has
// none. Calls on_diagonal(row) for every row of a diagonal tile.
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

// Divides a thread's scratch among buffers of 4-byte elements.
class Carver {
 public:
  explicit Carver(std::byte* base) : next_(base) {}
  template <class T>
  T* take(int64_t count) {
    auto* const taken = reinterpret_cast<T*>(next_);
    next_ += align_up(count * int64_t(sizeof(T)), kCacheLine);
    return taken;
  }
  [[nodiscard]] std::byte* end() const { return next_; }

 private:
  std::byte* next_;
};
// Size in bytes of a kind of scratch; found by carving it at null.
template <class ScratchOfHead>
int64_t bytes_of(const AttentionShape& s) {
  return reinterpret_cast<std::intptr_t>(ScratchOfHead(nullptr, s).end);
}

template <class Tiles>
struct ForwardScratch {
  using Word = typename Tiles::Word;
  Word *columns, *terms;  // keys and values of all tokens
  Word *rows, *held;      // per tile: queries, scores
  float *out, *scores;    // per tile
  std::byte* end;
  ForwardScratch(std::byte* base, const AttentionShape& s) {
    const Padded p(s);
    Carver carver(base);
    columns = carver.take<Word>(p.tiles() * Tiles::column_words(s));
    terms = carver.take<Word>(p.tiles() * Tiles::term_words(s));
    rows = carver.take<Word>(Tiles::row_words(s));
    out = carver.take<float>(p.tile_rows());
    scores = carver.take<float>(kTile * kTile);
    held = carver.take<Word>(Tiles::kHeldWords);
    end = carver.end();
  }
};

template <class T, class Tiles>
void forward_head(const AttentionForward& call, int64_t task, std::byte* scratch) {
  const AttentionShape& s = call.shape;
  const Padded p(s);
  const ForwardScratch<Tiles> w(scratch, s);
  const QueryHead head = QueryHead::of(s, task);
  const float scale = scale_of(s);
  const HeadSlice<T> queries = head_slice<T>(call.qkv, s, head),
                     keys = head_slice<T>(call.qkv, s, head, QkvPart::kK),
                     values = head_slice<T>(call.qkv, s, head, QkvPart::kV);
  for (int64_t k = 0; k < s.seq_len; k += kTile) {
    Tiles::pack_columns(keys, k, s, w.columns + k / kTile * Tiles::column_words(s));
    Tiles::pack_terms(values, k, s, w.terms + k / kTile * Tiles::term_words(s));
  }
  const HeadSlice<T> target = head_slice<T>(call.out, s, head);
  float* log_sum_exp = call.log_sum_exp.as<float>() + head.row * call.log_sum_exp.stride;
  const SeenKeys seen(call.document_begin, s, head.sequence);
  for (int64_t q = 0; q < s.seq_len; q += kTile) {
    float maximum[kTile], sum[kTile] = {};
    std::fill_n(maximum, kTile, -INFINITY);
    Tiles::pack_rows(queries, q, s, scale, w.rows);
    const int64_t first_tile = seen.first_tile(q);
    for (int64_t k = first_tile; k <= q; k += kTile) {
      const bool diagonal = k == q, first = k == first_tile;
      const Diagonal part = diagonal ? Diagonal::kYes : Diagonal::kNo;
      Tiles::scores(w.rows, w.columns + k / kTile * Tiles::column_words(s), s, scale, part,
                    w.scores);
      if (diagonal) fill_above_diagonal(w.scores, -INFINITY);
      seen.fill_before_documents(w.scores, q, k, kUnseen);
      softmax_tile(w.scores, diagonal, first, maximum, sum, w.out, p.dim,
                   [&](int64_t r) MPT_ALWAYS_INLINE {
                     prefetch_row<Use::kWrite>(target, q + r, s);
                     prefetch_row<Use::kRead>(queries, q + kTile + r, s);
                   });
      Tiles::add(adds_unless(first), w.scores, ScoresAs::kRows, w.held,
                 w.terms + k / kTile * Tiles::term_words(s), s, part, w.out);
    }
    for (int64_t r = 0; r < kTile && q + r < s.seq_len; ++r) {
      log_sum_exp[q + r] = maximum[r] + std::log(sum[r]);
      store_rows(w.out + r * p.dim, q + r, 1, s, 1.0f / sum[r], target);
    }
  }
}

template <class Tiles>
struct BackwardScratch {
  using Word = typename Tiles::Word;
  Word *query_rows, *query_terms, *d_out_rows, *d_out_terms;  // for all tokens
  float *d_queries, *log_sum_exp, *delta;                     // for all tokens
  Word *key_columns, *key_terms, *value_columns, *held;       // per tile
  float *probabilities, *d_scores;                            // per tile
  // Per tile if only one query head reads the keys; otherwise for all tokens, to sum over heads.
  float *d_keys, *d_values;
  std::byte* end;

  BackwardScratch(std::byte* base, const AttentionShape& s) {
    const Padded p(s);
    Carver carver(base);
    for (const auto& [rows, terms] :
         {std::pair{&query_rows, &query_terms}, {&d_out_rows, &d_out_terms}}) {
      *rows = carver.take<Word>(p.tiles() * Tiles::row_words(s));
      *terms = Tiles::kRowsAreTerms ? *rows : carver.take<Word>(p.tiles() * Tiles::term_words(s));
    }
    d_queries = carver.take<float>(p.matrix());
    for (float** column : {&log_sum_exp, &delta}) *column = carver.take<float>(p.tokens);
    for (Word** columns : {&key_columns, &value_columns})
      *columns = carver.take<Word>(Tiles::column_words(s));
    key_terms = carver.take<Word>(Tiles::term_words(s));
    held = carver.take<Word>(Tiles::kHeldWords);
    const int64_t summed = s.readers() == 1 ? p.tile_rows() : p.matrix();
    for (float** sum : {&d_keys, &d_values}) *sum = carver.take<float>(summed);
    for (float** tile : {&probabilities, &d_scores}) *tile = carver.take<float>(kTile * kTile);
    end = carver.end();
  }
};

// The order of a simd reduction depends on the vector width. A package, whose instruction-set
// levels must agree to the bit, adds in term order.
#if defined(MPT_PORTABLE_BITS)
#define MPT_SUM_INTO_DELTA
#else
#define MPT_SUM_INTO_DELTA _Pragma("omp simd reduction(+ : delta)")
#endif

// delta_i = sum_d dO_id O_id, the mean of dP under P in row i.
template <class T, class Tiles>
void row_deltas(const AttentionBackward& call, const QueryHead& head,
                const BackwardScratch<Tiles>& w) {
  const AttentionShape& s = call.shape;
  const Padded p(s);
  const HeadSlice<T> out = head_slice<T>(call.out, s, head),
                     d_out = head_slice<T>(call.d_out, s, head);
  const float* lse = call.log_sum_exp.as<float>() + head.row * call.log_sum_exp.stride;
  for (int64_t t = 0; t < p.tokens; ++t) {
    float delta = 0.0f;
    const int64_t dims = t < s.seq_len ? s.head_dim : 0;
    MPT_SUM_INTO_DELTA
    for (int64_t d = 0; d < dims; ++d)
      delta += to_float(d_out.data[t * d_out.stride + d]) * to_float(out.data[t * out.stride + d]);
    w.delta[t] = delta;
    w.log_sum_exp[t] = t < s.seq_len ? lse[t] : kPaddedLse;
  }
}

// Replaces S by P = exp(S - lse) and dP by dS = P (dP - delta). Calls on_diagonal(row) for every
// row of a diagonal tile.
template <class Tiles, class F>
void score_gradients(const BackwardScratch<Tiles>& w, int64_t q, bool diagonal,
                     const F& on_diagonal) {
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

// Where the gradients of a tile of keys and values are summed, and whether it is still empty.
struct KeySums {
  float *d_keys, *d_values;
  bool empty;
};

struct TilePlace {
  int64_t q, k;  // first query and first key
};

// All gradient contributions between a tile of queries and one of keys.
template <class Tiles, class F>
void backward_tile(const BackwardScratch<Tiles>& w, const KeySums& sums, const SeenKeys& seen,
                   const AttentionShape& s, TilePlace at, const F& on_diagonal) {
  const auto [q, k] = at;
  const bool diagonal = k == q;
  const Diagonal part = diagonal ? Diagonal::kYes : Diagonal::kNo;
  const int64_t rows = q / kTile * Tiles::row_words(s), terms = q / kTile * Tiles::term_words(s);
  Tiles::scores(w.query_rows + rows, w.key_columns, s, scale_of(s), part, w.probabilities);
  Tiles::scores(w.d_out_rows + rows, w.value_columns, s, 1.0f, part, w.d_scores);
  if (diagonal) {
    fill_above_diagonal(w.probabilities, -INFINITY);
    fill_above_diagonal(w.d_scores, 0.0f);
  }
  seen.fill_before_documents(w.probabilities, q, k, kUnseen);
  score_gradients(w, q, diagonal, on_diagonal);
  const Accumulate to_keys = adds_unless(diagonal && sums.empty);
  Tiles::add(to_keys, w.probabilities, ScoresAs::kColumns, w.held, w.d_out_terms + terms, s, part,
             sums.d_values);
  Tiles::add(adds_unless(k == seen.first_tile(q)), w.d_scores, ScoresAs::kRows, w.held, w.key_terms,
             s, part, w.d_queries + q * Padded(s).dim);
  Tiles::add(to_keys, w.d_scores, ScoresAs::kColumns, w.held, w.query_terms + terms, s, part,
             sums.d_keys);
}

// Computes the gradients of a query head and its contribution to those of its keys and values,
// which their last reader stores.
template <class T, class Tiles>
void backward_head(const AttentionBackward& call, const QueryHead& head,
                   const BackwardScratch<Tiles>& w) {
  const AttentionShape& s = call.shape;
  const Padded p(s);
  const int64_t reader = head.head % s.readers();
  const float scale = scale_of(s);
  const HeadSlice<T> queries = head_slice<T>(call.qkv, s, head),
                     d_out = head_slice<T>(call.d_out, s, head),
                     keys = head_slice<T>(call.qkv, s, head, QkvPart::kK),
                     values = head_slice<T>(call.qkv, s, head, QkvPart::kV);
  for (int64_t q = 0; q < s.seq_len; q += kTile) {
    const int64_t rows = q / kTile * Tiles::row_words(s), terms = q / kTile * Tiles::term_words(s);
    Tiles::pack_rows(queries, q, s, scale, w.query_rows + rows);
    Tiles::pack_rows(d_out, q, s, 1.0f, w.d_out_rows + rows);
    if (Tiles::kRowsAreTerms) continue;
    Tiles::pack_terms(queries, q, s, w.query_terms + terms);
    Tiles::pack_terms(d_out, q, s, w.d_out_terms + terms);
  }
  row_deltas<T>(call, head, w);
  const SeenKeys seen(call.document_begin, s, head.sequence);
  const HeadSlice<T> d_queries = head_slice<T>(call.d_qkv, s, head),
                     d_keys = head_slice<T>(call.d_qkv, s, head, QkvPart::kK),
                     d_values = head_slice<T>(call.d_qkv, s, head, QkvPart::kV);
  for (int64_t k = 0; k < s.seq_len; k += kTile) {
    const int64_t place = s.readers() == 1 ? 0 : k * p.dim;
    const KeySums sums{w.d_keys + place, w.d_values + place, reader == 0};
    Tiles::pack_terms(keys, k, s, w.key_terms);
    Tiles::pack_columns(keys, k, s, w.key_columns);
    Tiles::pack_columns(values, k, s, w.value_columns);
    for (int64_t q = k; q < s.seq_len && seen.first_tile(q) <= k; q += kTile)
      backward_tile(w, sums, seen, s, {q, k}, [&](int64_t r) MPT_ALWAYS_INLINE {
        for (const auto& target : {d_queries, d_keys, d_values})
          prefetch_row<Use::kWrite>(target, k + r, s);
      });
    store_rows(w.d_queries + k * p.dim, k, kTile, s, scale, d_queries);
    if (reader != s.readers() - 1) continue;
    store_rows(sums.d_keys, k, kTile, s, Tiles::kScalesRows ? 1.0f : scale, d_keys);
    store_rows(sums.d_values, k, kTile, s, 1.0f, d_values);
  }
}

// Processes all query heads that read a key/value head.
template <class T, class Tiles>
void backward_readers(const AttentionBackward& call, int64_t task, std::byte* scratch) {
  const AttentionShape& s = call.shape;
  const BackwardScratch<Tiles> w(scratch, s);
  for (int64_t row = task * s.readers(); row < (task + 1) * s.readers(); ++row)
    backward_head<T>(call, QueryHead::of(s, row), w);
}

template <class Tiles>
int64_t bytes_per_thread(const AttentionShape& s) {
  return align_up(std::max(bytes_of<ForwardScratch<Tiles>>(s), bytes_of<BackwardScratch<Tiles>>(s)),
                  kAlignment);
}

// Calls f.operator()<T, Tiles>() with the tensors' type and the numbers that their tiles are
// multiplied as.
template <class F>
auto with_tiles(DType storage, Bf16Dot dot, const F& f) {
  if (storage == DType::kF32) return f.template operator()<float, Fp32Tiles>();
  if (dot == Bf16Dot::kAvx512Bf16) return f.template operator()<bf16, PairTiles<Avx512Bf16>>();
  if (dot == Bf16Dot::kAmxBf16) return f.template operator()<bf16, PairTiles<AmxBf16>>();
  return f.template operator()<bf16, Fp32Tiles>();
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

int64_t CpuAttention::scratch_bytes(const AttentionShape& shape, DType storage) const {
  int64_t bytes = 0;
  for (const Bf16Dot dot : gemm_.possible_dots())
    with_tiles(storage, dot, [&]<class T, class Tiles>() {
      bytes = std::max(bytes, threads_ * bytes_per_thread<Tiles>(shape));
    });
  return bytes;
}

void CpuAttention::reserve(Allocator& allocator, const AttentionShape& shape, DType storage) {
  scratch_.reserve(allocator, scratch_bytes(shape, storage));
}

// Calls of_head(task, scratch) for every sequence and each of its `heads`.
template <class Tiles, class F>
void CpuAttention::run(const AttentionShape& shape, int64_t heads, const F& of_head) {
  const int64_t of_thread = bytes_per_thread<Tiles>(shape);
  check(threads_ * of_thread <= scratch_.bytes(),
        "attention over {} tokens needs {} bytes of scratch, reserved {}", shape.seq_len,
        threads_ * of_thread, scratch_.bytes());
  check(omp_get_max_threads() <= threads_, "attention with {} threads, but scratch reserved for {}",
        omp_get_max_threads(), threads_);
  for_each_head(shape, heads, [&](int64_t task) {
    [[maybe_unused]] const typename Tiles::Session session;
    of_head(task,
            reinterpret_cast<std::byte*>(scratch_.floats()) + omp_get_thread_num() * of_thread);
  });
}

void CpuAttention::forward(const AttentionForward& call) {
  check_shapes(call);
  with_tiles(call.qkv.dtype, gemm_.dot(), [&]<class T, class Tiles>() {
    run<Tiles>(call.shape, call.shape.heads, [&](int64_t task, std::byte* scratch) {
      forward_head<T, Tiles>(call, task, scratch);
    });
  });
}

void CpuAttention::backward(const AttentionBackward& call) {
  check_shapes(call);
  with_tiles(call.qkv.dtype, gemm_.dot(), [&]<class T, class Tiles>() {
    run<Tiles>(call.shape, call.shape.key_value_heads, [&](int64_t task, std::byte* scratch) {
      backward_readers<T, Tiles>(call, task, scratch);
    });
  });
}

}  // namespace mpt
