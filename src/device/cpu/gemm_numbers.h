// Packed number formats of a GEMM's operands, each with the kernel that multiplies them. Each has
//
//   Word                  a packed element, 4 bytes
//   kDepth                most terms per part
//   kRows, kColumns       of the largest tile; kVectors vectors of kLanes columns
//   kBlockRows            most rows of A packed together, in kRowWords words
//   panel_words(terms)    words per packed panel of kColumns columns
//   Rows                  packed rows: pack(), and groups() of them
//   pack(b, ...)          packs panels
//   run(rows, group, ...) multiplies a group of rows by a panel
//   Session               held by a thread while it calls run()
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "device/cpu/bf16_packing.h"
#include "device/cpu/gemm_packing.h"

namespace mpt {

// Scale and destination of a tile's sums.
struct TileTarget {
  float alpha;
  Accumulate accumulate;
  float* d;
  int64_t ldd;
};

// FP32 numbers, whatever the storage type.
struct Fp32Numbers {
  using Word = float;
  static constexpr int64_t kDepth = mpt::kDepth, kRows = kKernelRows, kColumns = kPanelColumns,
                           kBlockRows = mpt::kBlockRows, kRowWords = PackedRows::kFloats;
  static constexpr int kLanes = kTileLanes, kVectors = kKernelVectors;
  static constexpr int64_t panel_words(int64_t terms) { return terms * kPanelColumns; }
  struct Session {};
  using Rows = PackedRows;

  static void pack(const Factor& b, IndexRange columns, IndexRange terms, Word* words) {
    pack_panels(b, columns, terms, words);
  }
  static void run(const Rows& a, int64_t group, const Word* panel, int64_t terms, int vectors,
                  const TileTarget& to, const std::byte* const* prefetched) {
    run_kernel(int(a.groups()[group].size()), vectors, a.layout(),
               {.a = a.group(group),
                .b = panel,
                .depth = terms,
                .alpha = to.alpha,
                .accumulate = to.accumulate,
                .d = to.d,
                .ldd = to.ldd,
                .prefetched = prefetched});
  }
};

// An instruction for pairs of BF16 numbers: its kernel's largest tile, the required multiple of the
// number of pairs, and how it takes the transposed scores of attention.
struct Avx512Bf16 {
  static constexpr int kRows = kAvx512Rows, kVectors = kAvx512Vectors;
  static constexpr int64_t kPairStep = 1;
  struct Session {};
  static void run(const PairKernelCall& call) { run_avx512_kernel(call); }
  static PairRows round_columns(const float* x, int64_t rows, int64_t columns, Bf16Pair* to) {
    return round_columns_together(x, rows, columns, to);
  }
};
struct AmxBf16 {
  static constexpr int kRows = kAmxRows, kVectors = kAmxVectors;
  static constexpr int64_t kPairStep = kPairsPerTile;
  using Session = AmxTiles;
  static void run(const PairKernelCall& call) { run_amx_kernel(call); }
  static PairRows round_columns(const float* x, int64_t rows, int64_t columns, Bf16Pair* to) {
    return round_columns_apart(x, rows, columns, to);
  }
};

// Pairs of BF16 numbers.
template <class Instruction>
struct Bf16Pairs {
  using Word = Bf16Pair;
  static constexpr int kLanes = kPairLanes, kVectors = Instruction::kVectors;
  static constexpr int64_t kDepth = kPairDepth, kRows = Instruction::kRows,
                           kColumns = pair_columns(kVectors),
                           kBlockRows = int64_t{128} / kRows * kRows,
                           kRowWords = PackedPairRows::words(kBlockRows, kRows);
  static constexpr int64_t panel_words(int64_t terms) { return packed_pairs(terms) * kColumns; }
  using Session = typename Instruction::Session;

  struct Rows : PackedPairRows {
    explicit Rows(Word* words) : PackedPairRows(kRows, words) {}
  };

  static void pack(const Factor& b, IndexRange columns, IndexRange terms, Word* words) {
    pack_pair_panels({b.block(columns, terms), b.terms_are_rows}, columns.size(),
                     packed_pairs(terms.size()), kColumns, words);
  }
  static void run(const Rows& a, int64_t group, const Word* panel, int64_t terms, int vectors,
                  const TileTarget& to, const std::byte* const* prefetched) {
    Instruction::run({.rows = int(a.groups()[group].size()),
                      .vectors = vectors,
                      .a = a.group(group),
                      .b = panel,
                      .pairs = packed_pairs(terms),
                      .alpha = to.alpha,
                      .accumulate = to.accumulate,
                      .d = to.d,
                      .ldd = to.ldd,
                      .prefetched = prefetched});
  }
};

}  // namespace mpt
