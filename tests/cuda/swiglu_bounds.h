// Error bounds of SwiGLU in FP32, from the stated errors of a GPU's fast exponential and quotient
// (docs/numerics.md "Exponential"); the CPU's are smaller. To first order, in rounding errors of
// FP32, of which a unit in the last place is at most two.
#pragma once

#include <cmath>

namespace mpt::test {

// Exact values for one element.
struct SwigluElement {
  double gate, up, d_out;

  [[nodiscard]] double sigmoid() const { return 1 / (1 + std::exp(-gate)); }
  [[nodiscard]] double y() const { return gate * sigmoid() * up; }
  [[nodiscard]] double d_up() const { return d_out * gate * sigmoid(); }
  [[nodiscard]] double d_gate() const { return d_out * up * sigmoid() * of_gate(); }

  // Relative errors: the exponential's share of 1 + e^-gate is 1 - s; an addition and a quotient
  // follow, then two multiplications.
  [[nodiscard]] double sigmoid_error() const {
    const double exponential = 2 * (2 + 1.173 * std::abs(gate));
    return (exponential * (1 - sigmoid()) + 1 + 4) * kRounding;
  }
  [[nodiscard]] double y_error() const {
    return std::abs(y()) * (sigmoid_error() + 2 * kRounding) + underflow(gate * up);
  }
  [[nodiscard]] double d_up_error() const {
    return std::abs(d_up()) * (sigmoid_error() + 2 * kRounding) + underflow(d_out * gate);
  }
  // dy up s: the errors of the sigmoid and two multiplications. 1 + gate (1 - s): that of s, and
  // those of a difference, a multiplication and a sum. One multiplication joins them.
  [[nodiscard]] double d_gate_error() const {
    const double s = sigmoid(), factor = d_out * up * s, rest = gate * (1 - s);
    const double of_rest = std::abs(gate) * s * sigmoid_error() +
                           (2 * std::abs(rest) + std::abs(of_gate())) * kRounding;
    return std::abs(d_gate()) * (sigmoid_error() + 3 * kRounding) + std::abs(factor) * of_rest +
           underflow(d_out * up * (1 + std::abs(gate)));
  }

 private:
  static constexpr double kRounding = 0x1p-24;

  [[nodiscard]] double of_gate() const { return 1 + gate * (1 - sigmoid()); }
  // Sigmoids below the smallest normal number may be 0, and products may be subnormal.
  [[nodiscard]] static double underflow(double of_sigmoid) {
    return std::abs(of_sigmoid) * 0x1p-126 + 3 * 0x1p-149;
  }
};

}  // namespace mpt::test
