// Packs blocks of a GEMM's operands, BF16 or FP8, as pairs of BF16 numbers, in the order in which
// the kernels of bf16_kernel.h read them.
//
// FP8 values are exact in BF16. Missing terms, up to whole tiles, are zeros.
#pragma once

#include "device/cpu/bf16_kernel.h"
#include "device/cpu/gemm_packing.h"

namespace mpt {

// Whether an operand can be packed this way.
constexpr bool is_exact_in_bf16(DType dtype) { return dtype == DType::kBF16 || is_fp8(dtype); }

// Number of pairs packed for this many terms.
constexpr int64_t packed_pairs(int64_t terms) { return align_up((terms + 1) / 2, kPairsPerTile); }

// Rows of A with up to kPairDepth terms, in groups of up to `rows_of_group` for the kernel,
// followed by zero rows that complete the tiles of every group.
class PackedPairRows {
 public:
  // Small groups of a transposed A keep their rows together, pair by pair, which avoids
  // transposing.
  static constexpr int64_t kTogether = 8;
  static constexpr int64_t kWordsTogether = kPairDepth / 2 * kTogether + 16;  // per group

  static constexpr int64_t padded(int64_t rows) {
    return align_up(rows, kAmxTileRows) + kAmxTileRows;
  }
  static constexpr int64_t words(int64_t rows, int64_t rows_of_group) {
    return std::max(padded(rows) * kPairRowStride, rows / rows_of_group * kWordsTogether);
  }

  // `words` must hold words() for the most rows packed, in whole groups.
  PackedPairRows(int64_t rows_of_group, Bf16Pair* words)
      : rows_of_group_(rows_of_group), words_(words) {}
  void pack(const Factor& a, IndexRange rows, IndexRange terms);
  [[nodiscard]] const EvenParts& groups() const { return groups_; }  // counted from the first row
  [[nodiscard]] PairRows group(int64_t index) const {
    if (together_) return {words_ + index * kWordsTogether, 1, kTogether};
    return {words_ + groups_[index].begin * kPairRowStride, kPairRowStride, 1};
  }

 private:
  int64_t rows_of_group_;
  Bf16Pair* words_;
  EvenParts groups_{{}, 1};
  bool together_ = false;
};

// Packs a block of A, `rows` rows `stride` apart. Missing rows and terms become zeros.
void pack_pair_rows(const Factor& block, int64_t rows, int64_t pairs, int64_t stride, Bf16Pair* to);

// Packs a block of B in panels of `width` columns, a multiple of kBlock: panel p at to + p * pairs
// * width. Missing columns and terms become zeros.
void pack_pair_panels(const Factor& block, int64_t columns, int64_t pairs, int64_t width,
                      Bf16Pair* to);

// Converts scores x [rows, columns], rounded (round_rows()), to transposed rows of A: in score
// order, or row after row.
PairRows round_columns_together(const float* x, int64_t rows, int64_t columns, Bf16Pair* to);
PairRows round_columns_apart(const float* x, int64_t rows, int64_t columns, Bf16Pair* to);

}  // namespace mpt
