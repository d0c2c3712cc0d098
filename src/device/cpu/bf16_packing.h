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

// Up to kGroups groups of up to `rows_of_group` rows of A with up to kPairDepth terms.
class PackedPairRows {
 public:
  static constexpr int64_t kGroups = 8;
  static constexpr int64_t slot_rows(int64_t rows_of_group) {
    return align_up(rows_of_group, kAmxTileRows);
  }
  static constexpr int64_t words(int64_t rows_of_group) {
    return kGroups * slot_rows(rows_of_group) * kPairRowStride;
  }

  PackedPairRows(int64_t rows_of_group, Bf16Pair* words)
      : most_rows_(rows_of_group), words_(words) {}
  void pack(const Factor& a, IndexRange rows, IndexRange terms);
  [[nodiscard]] const EvenParts& groups() const { return groups_; }  // counted from the first row
  [[nodiscard]] const Bf16Pair* group(int64_t index) const {
    return words_ + index * slot_rows(most_rows_) * kPairRowStride;
  }

 private:
  int64_t most_rows_;
  Bf16Pair* words_;
  EvenParts groups_{{}, 1};
};

// Packs columns of B with up to kPairDepth terms in panels of kPairColumns, the last padded with
// zeros: panel p at words + p * packed_pairs(terms) * kPairColumns.
void pack_pair_panels(const Factor& b, IndexRange columns, IndexRange terms, Bf16Pair* words);

}  // namespace mpt
