// One factor of a linear layer's products: a matrix, and its codes the other way round where FP8 products ask
// for these (Fp8Layout::kRowsOfK).
#pragma once

#include "core/tensor.h"

namespace mpt {

// Either part may be missing (rows == 0): a product reads one of them, and what is read later than the other
// need not be there yet, or any more.
struct Operand {
  Tensor values;        // [rows, cols]
  Tensor transposed{};  // [cols, rows]: the same codes, FP8 only

  [[nodiscard]] int64_t rows() const { return values.rows > 0 ? values.rows : transposed.cols; }
  [[nodiscard]] int64_t cols() const { return values.rows > 0 ? values.cols : transposed.rows; }
  [[nodiscard]] Operand row_range(int64_t first, int64_t count) const {
    return {values.rows > 0 ? values.row_range(first, count) : Tensor{},
            transposed.rows > 0 ? transposed.columns(first, count) : Tensor{}};
  }
  // What y = x W^T reads of x, and what dW = dy^T x does.
  [[nodiscard]] Operand for_forward() const { return {.values = values}; }
  [[nodiscard]] Operand for_backward() const {
    return transposed.rows > 0 ? Operand{.values = {}, .transposed = transposed} : *this;
  }
};

}  // namespace mpt
