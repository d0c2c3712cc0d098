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
  // The fewest parts of at most `most` each, at least one.
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

// Block sizes: rows of A, chosen so that a packed block takes a part of L2, and columns of B.
inline constexpr int64_t kBlockRows = int64_t{8} * kKernelRows, kBlockColumns = 1024;

// An operand, and whether its rows are terms: false for A [m,k] and transposed B [n,k], whose
// columns are.
struct Factor {
  Tensor matrix;
  bool terms_are_rows;

  // The block of the GEMM's rows or columns `outer` and the terms `terms`.
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
      kDepth * kTermStride + 16;  // of a group in the term-major layout
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

// Packs up to kBlockColumns columns of B with up to kDepth terms in panels of kPanelColumns, the
// last padded with zeros: panel p at floats + p * depth * kPanelColumns.
void pack_panels(const Factor& b, IndexRange columns, IndexRange terms, float* floats);

// --- transposing in registers --------------------------------------------------------------------

inline constexpr int kBlock = 8;
using BlockRow = float __attribute__((vector_size(4 * kBlock), aligned(4), may_alias));

// Transposes in place: interleaves the first half of the rows with the second, three times.
inline void transpose_block(BlockRow (&rows)[kBlock]) {
  for (int round = 0; round < 3; ++round) {
    BlockRow next[kBlock];
    for (int64_t i = 0; i < kBlock / 2; ++i) {
      const BlockRow &a = rows[i], &b = rows[i + kBlock / 2];
      next[2 * i] = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
      next[2 * i + 1] = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
    }
    std::copy_n(next, kBlock, rows);
  }
}

// target[column][row] = value(source[row][column]) for a whole block. Only height rows and width
// columns exist; the rest is filled with zeros. Strides in elements.
template <class T, class F>
MPT_ALWAYS_INLINE inline void transpose_block(const T* source, int64_t source_stride,
                                              int64_t height, int64_t width, const F& value,
                                              float* target, int64_t target_stride) {
  BlockRow rows[kBlock] = {};
  for (int64_t r = 0; r < height; ++r) {
    const T* from = source + r * source_stride;
    if (width == kBlock)
      for (int64_t c = 0; c < kBlock; ++c) rows[r][c] = value(from[c]);
    else
      for (int64_t c = 0; c < width; ++c) rows[r][c] = value(from[c]);
  }
  transpose_block(rows);
  for (int64_t c = 0; c < kBlock; ++c)
    *reinterpret_cast<BlockRow*>(target + c * target_stride) = rows[c];
}

}  // namespace mpt
