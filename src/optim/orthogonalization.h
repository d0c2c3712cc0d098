// Directions with all singular values about equal, by Newton-Schulz iteration (Jordan et al. 2024,
// docs/numerics.md "Orthogonalized directions"). For a matrix with mean gradient M:
//   U = mu M + (1 - mu) G (Nesterov), or M;   X = U / (|U| + 1e-7)
//   kIterations times:  A = X X^T;  X <- a X + (b A + c A A) X
//   O = 0.2 sqrt(max(rows, cols)) X
// If the matrix has more rows than columns, A = X^T X and the GEMMs are on the other side.
#pragma once

#include <optional>
#include <vector>

#include "device/device.h"
#include "device/gemm.h"
#include "optim/update/optimizer_ops.h"

namespace mpt {

class Orthogonalization {
 public:
  static constexpr int kIterations = 5;
  static constexpr float kA = 3.4445f, kB = -4.7750f, kC = 2.0315f;

  // Allocates scratch for the largest of `shapes`; empty: nothing is ever orthogonalized.
  Orthogonalization(std::optional<OrthogonalizationOptions> options,
                    const std::vector<MatrixShape>& shapes, StateUpdate update, Device& device,
                    Allocator& allocator);

  // Enqueues O for the gradient and the stored mean, into scratch that the next call overwrites.
  void run(OptimizerOps& ops, const Tensor& gradient, const Tensor& mean,
           const StepControl* control);
  // Directions that run() leaves for a matrix of this shape.
  [[nodiscard]] SharedFactors factors(MatrixShape shape) const;

 private:
  [[nodiscard]] Tensor matrix(const Tensor& row, int64_t rows, int64_t cols) const;
  [[nodiscard]] std::vector<GemmCall> gemms(MatrixShape shape) const;

  std::optional<OrthogonalizationOptions> options_;
  StateUpdate update_;
  Device& device_;
  Tensor x_, y_;    // [1, most elements] fp32: X, and what an iteration adds to it
  Tensor a_, b_;    // [1, most elements of a square of the shorter side] fp32
  Tensor partial_;  // fp64: sums of squares
};

}  // namespace mpt
