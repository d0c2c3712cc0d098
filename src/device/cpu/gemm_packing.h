// Blocks of a product's operands, copied into the order in which the kernel reads them, as FP32.
#pragma once

#include <algorithm>

#include "core/tensor.h"
#include "device/cpu/even_parts.h"
#include "device/cpu/gemm_kernel.h"

namespace mpt {

// Of A, with whose terms they are a part of the second cache, and of B.
inline constexpr int64_t kBlockRows = int64_t{8} * kKernelRows, kBlockColumns = 1024;

// An operand, and whether its rows hold terms (A [m,k] and B transposed, [n,k], have them in columns).
struct Factor {
  Tensor matrix;
  bool terms_are_rows;

  // Of some of its rows or columns of the product.
  [[nodiscard]] Tensor block(IndexRange outer, IndexRange terms) const {
    return terms_are_rows ? matrix.row_range(terms.begin, terms.size()).columns(outer.begin, outer.size())
                          : matrix.row_range(outer.begin, outer.size()).columns(terms.begin, terms.size());
  }
};

// Up to kBlockRows rows of A with up to kDepth terms, for the kernel in groups of up to kKernelRows.
class PackedRows {
 public:
  static constexpr int64_t kGroupFloats = kDepth * kTermStride + 16;  // of a group whose terms lie together
  static constexpr int64_t kFloats =
      std::max(kBlockRows * kRowStride, kBlockRows / kKernelRows * kGroupFloats);

  // floats: kFloats of them.
  explicit PackedRows(float* floats) : floats_(floats) {}
  void pack(const Factor& a, IndexRange rows, IndexRange terms);
  [[nodiscard]] const EvenParts& groups() const { return groups_; }  // counted from the first row
  [[nodiscard]] Transpose layout() const { return layout_; }
  [[nodiscard]] const float* group(int64_t index) const;

 private:
  float* floats_;
  EvenParts groups_{{}, 1};
  Transpose layout_ = Transpose::kNo;
};

// Up to kBlockColumns columns of B with up to kDepth terms, in panels of kPanelColumns, the last of them
// filled up with zeros: panel p at floats + p * depth * kPanelColumns.
void pack_panels(const Factor& b, IndexRange columns, IndexRange terms, float* floats);

}  // namespace mpt
