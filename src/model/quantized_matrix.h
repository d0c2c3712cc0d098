// An operand of a linear layer's GEMMs: a matrix, plus its transposed codes if FP8 GEMMs need them
// (Fp8Layout::kRowsOfK).
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace mpt {

// Either part may be missing (rows == 0): a GEMM reads only one of them, and lifetimes may differ.
struct QuantizedMatrix {
  Tensor values;        // [rows, cols]
  Tensor transposed{};  // [cols, rows]: the same codes, FP8 only

  [[nodiscard]] int64_t rows() const { return values.rows > 0 ? values.rows : transposed.cols; }
  [[nodiscard]] int64_t cols() const { return values.rows > 0 ? values.cols : transposed.rows; }
  [[nodiscard]] QuantizedMatrix row_range(int64_t first, int64_t count) const {
    return {values.rows > 0 ? values.row_range(first, count) : Tensor{},
            transposed.rows > 0 ? transposed.columns(first, count) : Tensor{}};
  }
  // The part of x that y = x W^T reads, and the part that dW = dy^T x reads.
  [[nodiscard]] QuantizedMatrix for_forward() const { return {.values = values}; }
  [[nodiscard]] QuantizedMatrix for_backward() const {
    return transposed.rows > 0 ? QuantizedMatrix{.values = {}, .transposed = transposed} : *this;
  }
};

}  // namespace mpt
