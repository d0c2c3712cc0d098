// Packed operands of attention's GEMMs, and the GEMMs themselves. Each kind of numbers packs a tile
// of kTile tokens of a head, [kTile, D], in up to three ways:
//
//   rows     of A, whose terms are dimensions:  scores [kTile, kTile] = alpha rows columns
//   columns  of B, whose terms are dimensions
//   terms    of B, whose rows are tokens:       sum [kTile, D] += scores terms
//
// and has
//
//   Word                      a packed element, 4 bytes
//   kScalesRows               rows of queries are scaled when packed; otherwise, their scores are
//   kRowsAreTerms             rows and terms have the same packing: one of them is enough
//   row_words, column_words, term_words    per tile
//   kHeldWords                scratch of add()
//   Session                   held by a thread while it calls scores() and add()
//
// Scores and sums are FP32. Dimensions are zero-padded to Padded::dim, tokens to a whole tile.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/bf16.h"
#include "device/attention.h"
#include "device/cpu/gemm_kernel.h"
#include "device/cpu/gemm_numbers.h"
#include "device/cpu/tile_gemm.h"
#include "device/cpu/transpose_block.h"

namespace mpt {

inline constexpr int64_t kTile = 64;  // queries and keys per tile: a multiple of kTileColumns

// Sizes with T padded to whole tiles and D to whole vectors; padding is zero and never stored.
struct Padded {
  int64_t tokens, dim;
  explicit Padded(const AttentionShape& s)
      : tokens(align_up(s.seq_len, kTile)), dim(align_up(s.head_dim, kTileColumns)) {}
  [[nodiscard]] int64_t tiles() const { return tokens / kTile; }
  [[nodiscard]] int64_t matrix() const { return tokens * dim; }
  [[nodiscard]] int64_t tile_rows() const { return kTile * dim; }
};

// One head's slice of a [B T, ...] tensor.
template <class T>
struct HeadSlice {
  T* data;
  int64_t stride;
};

// Number of tokens in a tile.
inline int64_t tokens_of_tile(const AttentionShape& s, int64_t first) {
  return std::clamp<int64_t>(s.seq_len - first, 0, kTile);
}

// Whether a tile on the diagonal of causal attention omits the scores of keys after the query.
enum class Diagonal : uint8_t { kNo, kYes };

// Scores [queries, keys] as A, or transposed.
enum class ScoresAs : uint8_t { kRows, kColumns };

// --- FP32 ----------------------------------------------------------------------------------------

struct Fp32Tiles {
  using Word = float;
  struct Session {};
  static constexpr bool kScalesRows = true, kRowsAreTerms = true;
  static constexpr int64_t kHeldWords = 0;
  static int64_t row_words(const AttentionShape& s) { return Padded(s).tile_rows(); }
  static int64_t column_words(const AttentionShape& s) { return Padded(s).tile_rows(); }
  static int64_t term_words(const AttentionShape& s) { return Padded(s).tile_rows(); }

  // [kTile, Dp], times scale
  template <class T>
  static void pack_rows(HeadSlice<T> source, int64_t first, const AttentionShape& s, float scale,
                        Word* to) {
    const Padded p(s);
    const int64_t there = tokens_of_tile(s, first);
    for (int64_t r = 0; r < there; ++r) {
      const T* from = source.data + (first + r) * source.stride;
      float* row = to + r * p.dim;
#pragma omp simd
      for (int64_t d = 0; d < s.head_dim; ++d) row[d] = scale * to_float(from[d]);
      for (int64_t d = s.head_dim; d < p.dim; ++d) row[d] = 0.0f;
    }
    std::fill(to + there * p.dim, to + p.tile_rows(), 0.0f);
  }
  template <class T>
  static void pack_terms(HeadSlice<T> source, int64_t first, const AttentionShape& s, Word* to) {
    pack_rows(source, first, s, 1.0f, to);
  }
  // [Dp, kTile]
  template <class T>
  static void pack_columns(HeadSlice<T> source, int64_t first, const AttentionShape& s, Word* to) {
    const Padded p(s);
    for (int64_t r = 0; r < kTile; r += kBlock)
      for (int64_t d = 0; d < p.dim; d += kBlock) {
        const int64_t height = std::clamp<int64_t>(s.seq_len - first - r, 0, kBlock),
                      width = std::clamp<int64_t>(s.head_dim - d, 0, kBlock);
        transpose_block(
            source.data + (first + r) * source.stride + d, source.stride, height, width,
            [](T x) { return to_float(x); }, to + d * kTile + r, kTile);
      }
  }

  static void scores(const Word* rows, const Word* columns, const AttentionShape& s,
                     float /*alpha: in the rows*/, Diagonal diagonal, float* scores) {
    const Padded p(s);
    tile_gemm(Accumulate::kNo, {.m = kTile,
                                .n = kTile,
                                .k = p.dim,
                                .a = {rows, p.dim, 1},
                                .b = columns,
                                .ldb = kTile,
                                .c = scores,
                                .ldc = kTile,
                                .causal = causal(diagonal, Causal::kOutput)});
  }
  static void add(Accumulate accumulate, const float* scores, ScoresAs as, Word* /*held*/,
                  const Word* terms, const AttentionShape& s, Diagonal diagonal, float* sum) {
    const Padded p(s);
    const bool rows = as == ScoresAs::kRows;
    tile_gemm(accumulate,
              {.m = kTile,
               .n = p.dim,
               .k = kTile,
               .a = rows ? TileA{scores, kTile, 1} : TileA{scores, 1, kTile},
               .b = terms,
               .ldb = p.dim,
               .c = sum,
               .ldc = p.dim,
               .causal = causal(diagonal, rows ? Causal::kUpToRow : Causal::kFromRowOn)});
  }
  static Causal causal(Diagonal diagonal, Causal part) {
    return diagonal == Diagonal::kYes ? part : Causal::kNo;
  }
};

// --- pairs of BF16 numbers -----------------------------------------------------------------------

// Inputs are already BF16; scores are rounded to it before they are multiplied again.
template <class Instruction>
struct PairTiles {
  using Word = Bf16Pair;
  using Session = typename Instruction::Session;
  static constexpr int64_t kRows = Instruction::kRows, kStep = Instruction::kPairStep,
                           kColumns = pair_columns(Instruction::kVectors);
  static constexpr bool kScalesRows = false, kRowsAreTerms = false;
  static constexpr int64_t kScorePairs = kTile / 2, kHeldWords = kTile * kScorePairs;
  static int64_t row_words(const AttentionShape& s) { return kTile * packed_pairs(s.head_dim); }
  static int64_t column_words(const AttentionShape& s) { return row_words(s); }
  static int64_t term_words(const AttentionShape& s) {
    return kScorePairs * align_up(s.head_dim, kColumns);
  }
  static_assert(kTile % kColumns == 0 && kScorePairs % kPairsPerTile == 0);

  static Tensor tile_of(HeadSlice<bf16> source, int64_t first, const AttentionShape& s) {
    return {reinterpret_cast<std::byte*>(source.data + first * source.stride), DType::kBF16,
            tokens_of_tile(s, first), s.head_dim, source.stride};
  }
  // [kTile, pairs]
  static void pack_rows(HeadSlice<bf16> source, int64_t first, const AttentionShape& s,
                        float /*scale: of the scores*/, Word* to) {
    const int64_t pairs = packed_pairs(s.head_dim);
    pack_pair_rows({tile_of(source, first, s), false}, kTile, pairs, pairs, to);
  }
  // Panels [pairs, kColumns] of tokens.
  static void pack_columns(HeadSlice<bf16> source, int64_t first, const AttentionShape& s,
                           Word* to) {
    pack_pair_panels({tile_of(source, first, s), false}, kTile, packed_pairs(s.head_dim), kColumns,
                     to);
  }
  // Panels [pairs, kColumns] of dimensions.
  static void pack_terms(HeadSlice<bf16> source, int64_t first, const AttentionShape& s, Word* to) {
    pack_pair_panels({tile_of(source, first, s), true}, s.head_dim, kScorePairs, kColumns, to);
  }

  static void scores(const Word* rows, const Word* columns, const AttentionShape& s, float alpha,
                     Diagonal diagonal, float* scores) {
    const int64_t pairs = packed_pairs(s.head_dim);
    const PairRows a{rows, pairs, 1};
    for (int64_t column = 0; column < kTile; column += kColumns)
      for (int64_t row = 0; row < kTile; row += kRows) {
        const int64_t height = std::min<int64_t>(kRows, kTile - row),
                      end = diagonal == Diagonal::kYes ? std::min(kTile, row + height) : kTile;
        if (column < end)
          multiply(Accumulate::kNo, alpha, a.from(row, 0), columns + column * pairs,
                   {height, std::min(kColumns, end - column), pairs}, scores + row * kTile + column,
                   kTile);
      }
  }
  static void add(Accumulate accumulate, const float* scores, ScoresAs as, Word* held,
                  const Word* terms, const AttentionShape& s, Diagonal diagonal, float* sum) {
    const int64_t dim = Padded(s).dim;
    const bool rows = as == ScoresAs::kRows, whole = diagonal == Diagonal::kNo;
    const PairRows a =
        rows ? round_tile(scores, held) : Instruction::round_columns(scores, kTile, kTile, held);
    for (int64_t column = 0; column < dim; column += kColumns)
      for (int64_t row = 0; row < kTile; row += kRows) {
        const int64_t height = std::min<int64_t>(kRows, kTile - row);
        // Range of this row's score pairs that are not zero for its whole group.
        const int64_t begin = whole || rows ? 0 : row / 2 / kStep * kStep,
                      end = whole || !rows ? kScorePairs : align_up((row + height + 1) / 2, kStep);
        multiply(
            accumulate, 1.0f, a.from(row, begin), terms + column * kScorePairs + begin * kColumns,
            {height, std::min(kColumns, dim - column), end - begin}, sum + row * dim + column, dim);
      }
  }

 private:
  static PairRows round_tile(const float* scores, Word* to) {
    round_neighbours(scores, kTile * kScorePairs, to);
    return {to, kScorePairs, 1};
  }
  struct Size {
    int64_t rows, columns, pairs;
  };
  static void multiply(Accumulate accumulate, float alpha, const PairRows& a, const Word* b,
                       const Size& size, float* to, int64_t stride) {
    Instruction::run({.rows = int(size.rows),
                      .vectors = int((size.columns + kPairLanes - 1) / kPairLanes),
                      .a = a,
                      .b = b,
                      .pairs = size.pairs,
                      .alpha = alpha,
                      .accumulate = accumulate,
                      .d = to,
                      .ldd = stride});
  }
};

}  // namespace mpt
