// Packs blocks of a GEMM's operands, BF16 or FP8, as pairs of BF16 numbers, in the order in which
// the kernels of bf16_kernel.h read them.
//
// FP8 values are exact in BF16. Missing terms, up to whole tiles, are zeros.
#pragma once

#include "device/cpu/bf16_kernel.h"
#include "device/cpu/gemm_packing.h"

namespace mpt {

// Whether an operand can be packed so.
constexpr bool is_exact_in_bf16(DType dtype) { return dtype == DType::kBF16 || is_fp8(dtype); }

// Pairs that are packed for so many terms.
constexpr int64_t packed_pairs(int64_t terms) { return align_up((terms + 1) / 2, kPairsPerTile); }

// Rows of A with up to kPairDepth terms, in groups of up to `rows_of_group` for the kernel, and
// rows of zeros after them, so that all groups have what makes their tiles whole.
class PackedPairRows {
 public:
  // Rows of small groups of a transposed A lie together, pair by pair: it takes no transposing.
  static constexpr int64_t kTogether = 8;
  static constexpr int64_t kWordsTogether = kPairDepth / 2 * kTogether + 16;  // of a group

  static constexpr int64_t padded(int64_t rows) {
    return align_up(rows, kAmxTileRows) + kAmxTileRows;
  }
  static constexpr int64_t words(int64_t rows, int64_t rows_of_group) {
    return std::max(padded(rows) * kPairRowStride, rows / rows_of_group * kWordsTogether);
  }

  // `words` has as many as words() says of the most rows packed, whole groups.
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

// Packs a block of A, `rows` rows `stride` apart. What the block lacks of rows and terms are zeros.
void pack_pair_rows(const Factor& block, int64_t rows, int64_t pairs, int64_t stride, Bf16Pair* to);

// Packs a block of B in panels of `width` columns, a multiple of kBlock: panel p at
// to + p * pairs * width. What the block lacks of columns and terms are zeros.
void pack_pair_panels(const Factor& block, int64_t columns, int64_t pairs, int64_t width,
                      Bf16Pair* to);

// Scores x [rows, columns], rounded (round_rows()), as transposed rows of A: in the order of the
// scores, or row after row.
PairRows round_columns_together(const float* x, int64_t rows, int64_t columns, Bf16Pair* to);
PairRows round_columns_apart(const float* x, int64_t rows, int64_t columns, Bf16Pair* to);

}  // namespace mpt
