// Packs blocks of a GEMM's operands as FP32, in the order in which the kernel reads them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/host_device.h"
#include "core/tensor.h"
#include "device/cpu/gemm_kernel.h"

namespace mpt {

struct IndexRange {
  int64_t begin = 0, end = 0;
  [[nodiscard]] int64_t size() const { return end - begin; }
};

// A range divided into nearly equal parts.
class EvenParts {
 public:
  EvenParts(IndexRange all, int64_t count) : all_(all), count_(count) {}
  // The smallest number of parts of at most `most` elements each; at least one.
  static EvenParts of_at_most(IndexRange all, int64_t most) {
    return {all, std::max<int64_t>(1, (all.size() + most - 1) / most)};
  }
  [[nodiscard]] int64_t count() const { return count_; }
  [[nodiscard]] IndexRange operator[](int64_t part) const { return {edge(part), edge(part + 1)}; }

 private:
  [[nodiscard]] int64_t edge(int64_t part) const {
    return all_.begin + all_.size() * part / count_;
  }

  IndexRange all_;
  int64_t count_;
};

// Block sizes: rows of A, chosen so that a packed block takes a fraction of L2, and columns of B.
inline constexpr int64_t kBlockRows = int64_t{8} * kKernelRows, kBlockColumns = 1024;

// An operand, and whether its rows are terms: false for A [m,k] and transposed B [n,k], whose
// columns are.
struct Factor {
  Tensor matrix;
  bool terms_are_rows;

  // The block with rows or columns `outer` of the GEMM and terms `terms`.
  [[nodiscard]] Tensor block(IndexRange outer, IndexRange terms) const {
    return terms_are_rows
               ? matrix.row_range(terms.begin, terms.size()).columns(outer.begin, outer.size())
               : matrix.row_range(outer.begin, outer.size()).columns(terms.begin, terms.size());
  }
};

// Up to kBlockRows rows of A with up to kDepth terms, in groups of up to kKernelRows for the
// kernel.
class PackedRows {
 public:
  static constexpr int64_t kGroupFloats =
      kDepth * kTermStride + 16;  // per group in the term-major layout
  static constexpr int64_t kFloats =
      std::max(kBlockRows * kRowStride, kBlockRows / kKernelRows * kGroupFloats);

  // `floats` must have kFloats elements.
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

// Packs up to kBlockColumns columns of B with up to kDepth terms in panels of kPanelColumns,
// zero-padding the last: panel p at floats + p * depth * kPanelColumns.
void pack_panels(const Factor& b, IndexRange columns, IndexRange terms, float* floats);

}  // namespace mpt
