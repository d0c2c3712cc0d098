#include "optim/orthogonalization.h"

#include <algorithm>
#include <cmath>

#include "optim/gradient_norm.h"

namespace mpt {

Orthogonalization::Orthogonalization(std::optional<OrthogonalizationOptions> options,
                                     const std::vector<MatrixShape>& shapes, StateUpdate update,
                                     Device& device, Allocator& allocator)
    : options_(options), update_(update), device_(device) {
  if (!options_ || shapes.empty()) return;
  int64_t elements = 0, square = 0, sums = 0;
  for (const auto& [rows, cols] : shapes) {
    const int64_t side = std::min(rows, cols);
    elements = std::max(elements, rows * cols);
    square = std::max(square, side * side);
    sums = std::max(sums, square_sums(rows, cols));
  }
  const auto row = [&](DType dtype, int64_t count) {
    return allocator.tensor(kScratchMemory, dtype, 1, count);
  };
  x_ = row(DType::kF32, elements);
  y_ = row(DType::kF32, elements);
  a_ = row(DType::kF32, square);
  b_ = row(DType::kF32, square);
  partial_ = row(DType::kF64, sums);
  std::vector<GemmCall> calls;
  for (const MatrixShape& shape : shapes)
    for (const GemmCall& call : gemms(shape)) calls.push_back(call);
  device_.gemm().reserve(allocator, calls);
}

Tensor Orthogonalization::matrix(const Tensor& row, int64_t rows, int64_t cols) const {
  return {row.data, row.dtype, rows, cols, cols};
}

// A = X X^T, B = A A and Y = B X, or A = X^T X, B = A A and Y = X B.
std::vector<GemmCall> Orthogonalization::gemms(MatrixShape shape) const {
  const auto& [rows, cols] = shape;
  const int64_t side = std::min(rows, cols);
  const Tensor x = matrix(x_, rows, cols), y = matrix(y_, rows, cols), a = matrix(a_, side, side),
               b = matrix(b_, side, side);
  if (rows <= cols)
    return {{.a = x, .b = x, .d = a, .transpose_b = Transpose::kYes},
            {.a = a, .b = a, .d = b},
            {.a = b, .b = x, .d = y}};
  return {{.a = x, .b = x, .d = a, .transpose_a = Transpose::kYes},
          {.a = a, .b = a, .d = b},
          {.a = x, .b = b, .d = y}};
}

void Orthogonalization::run(OptimizerOps& ops, const Tensor& gradient, const Tensor& mean,
                            const StepControl* control) {
  const MatrixShape shape{gradient.rows, gradient.cols};
  const Tensor x = matrix(x_, shape.rows, shape.cols), y = matrix(y_, shape.rows, shape.cols);
  const int64_t side = std::min(shape.rows, shape.cols);
  const Tensor a = matrix(a_, side, side), b = matrix(b_, side, side);
  ops.mean_direction({.gradient = gradient,
                      .mean = mean,
                      .options = *options_,
                      .state_update = update_,
                      .control = control,
                      .direction = x});
  ops.sum_of_squares(x, partial_);
  ops.divide_by_norm(x, partial_.columns(0, square_sums(shape.rows, shape.cols)));
  const std::vector<GemmCall> calls = gemms(shape);
  const float scale = float(0.2 * std::sqrt(double(std::max(shape.rows, shape.cols))));
  for (int i = 0; i < kIterations; ++i) {
    const float last = i == kIterations - 1 ? scale : 1.0f;
    device_.gemm().run(calls[0]);
    device_.gemm().run(calls[1]);
    ops.combine(b, kC, a, kB);  // B = c A A + b A
    device_.gemm().run(calls[2]);
    ops.combine(x, last * kA, y, last);
  }
}

SharedFactors Orthogonalization::factors(MatrixShape shape) const {
  return {.values = x_.as<float>(), .row_step = shape.cols, .col_step = 1};
}

}  // namespace mpt
