// What the operands of a GEMM are packed as, and the kernel that multiplies them. Each kind of
// numbers has
//
//   Word                  a packed element, of 4 bytes
//   kDepth                most terms of a part
//   kRows, kColumns       of the largest tile; kVectors vectors of kLanes columns
//   kBlockRows            most rows of A that are packed together, in kRowWords words
//   panel_words(terms)    words of a packed panel of kColumns columns
//   Rows                  packed rows: pack(), and groups() of them
//   pack(b, ...)          packs panels
//   run(rows, group, ...) multiplies a group of rows by a panel
//   Session               a thread has one while it calls run()
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "device/cpu/bf16_packing.h"
#include "device/cpu/gemm_packing.h"

namespace mpt {

// A tile's sums, and where they go.
struct TileTarget {
  float alpha;
  Accumulate accumulate;
  float* d;
  int64_t ldd;
};

// As FP32 numbers, whatever their storage type.
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

// As pairs of BF16 numbers.
template <int kRowsOfGroup, int kMostVectors, void (*kKernel)(const PairKernelCall&),
          class SessionOfKernel>
struct Bf16Pairs {
  using Word = Bf16Pair;
  static constexpr int64_t kDepth = kPairDepth, kRows = kRowsOfGroup,
                           kColumns = pair_columns(kMostVectors),
                           kBlockRows = int64_t{128} / kRowsOfGroup * kRowsOfGroup,
                           kRowWords = PackedPairRows::words(kBlockRows);
  static constexpr int kLanes = kPairLanes, kVectors = kMostVectors;
  static constexpr int64_t panel_words(int64_t terms) { return packed_pairs(terms) * kColumns; }
  using Session = SessionOfKernel;

  struct Rows : PackedPairRows {
    explicit Rows(Word* words) : PackedPairRows(kRowsOfGroup, words) {}
  };

  static void pack(const Factor& b, IndexRange columns, IndexRange terms, Word* words) {
    pack_pair_panels(b, columns, terms, kColumns, words);
  }
  static void run(const Rows& a, int64_t group, const Word* panel, int64_t terms, int vectors,
                  const TileTarget& to, const std::byte* const* prefetched) {
    kKernel({.rows = int(a.groups()[group].size()),
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
struct NoSession {};
using Avx512Pairs = Bf16Pairs<kAvx512Rows, kAvx512Vectors, run_avx512_kernel, NoSession>;
using AmxPairs = Bf16Pairs<kAmxRows, kAmxVectors, run_amx_kernel, AmxTiles>;

}  // namespace mpt
