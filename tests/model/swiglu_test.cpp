// SwiGLU: the formula's own derivative by the complex step, and the operation against FP64.
#include "model/formulas/swiglu.h"

#include <gtest/gtest.h>

#include "model/closeness.h"
#include "model/op_bench.h"
#include "model/reference.h"

namespace mpt::test {
namespace {

// Evaluates the template that runs in FP32 on the device in complex<double>.
TEST(SwigluFormula, GradientIsTheDerivative) {
  for (const double gate : {-40.0, -5.0, -1.2784645427610738, -0.3, 0.0, 1e-3, 0.7, 6.0, 40.0})
    for (const double up : {-1.5, 0.0, 0.25, 3.0}) {
      const auto d = swiglu_gradient<double>(gate, up, 0.8);
      const auto want =
          complex_step({gate, up}, [](const auto& x) { return 0.8 * swiglu<Complex>(x[0], x[1]); });
      EXPECT_NEAR(d.gate, want[0], 1e-14 * (1 + std::abs(gate)) * std::abs(up))
          << gate << " " << up;
      EXPECT_NEAR(d.up, want[1], 1e-14 * std::abs(want[1])) << gate << " " << up;
      EXPECT_NEAR(swiglu(gate, up), reference_swiglu(gate, up), 1e-15 * std::abs(gate * up));
    }
}

struct SwigluCase {
  DType storage;
  int64_t rows, cols;
};

std::string swiglu_case_name(const testing::TestParamInfo<SwigluCase>& info) {
  return fmt::format("{}_{}x{}", name_of(info.param.storage), info.param.rows, info.param.cols);
}

class Swiglu : public testing::TestWithParam<SwigluCase> {
 protected:
  // Gates over many magnitudes, and the ends of the exponential's range.
  static Matrix gates_and_ups(const SwigluCase& c) {
    Matrix m = random_matrix(c.rows, 2 * c.cols, c.storage, 5);
    const double scales[] = {1, 0.01, 10, 60, 100, 1e4};
    for (int64_t r = 0; r < c.rows; ++r)
      for (int64_t i = 0; i < c.cols; ++i)
        m.at(r, i) = rounded(m.at(r, i) * scales[size_t(r + i) % 6], c.storage);
    return m;
  }
  // e^x is within 2 ulp (4 half ulps); addition, division and two multiplications follow. Below
  // FP32's smallest normal number the sigmoid may be 0.
  static constexpr double kTerms = 16, kUnderflow = 0x1p-126 / kFp32Rounding;

  SwigluCase c_ = GetParam();
  OpBench bench_;
  Matrix in_ = gates_and_ups(c_);
};

TEST_P(Swiglu, Forward) {
  const Tensor out = bench_.empty(c_.storage, c_.rows, c_.cols);
  bench_.ops().swiglu_forward(bench_.put(c_.storage, in_), out);
  const Matrix got = bench_.get(out);
  for (int64_t r = 0; r < c_.rows; ++r)
    for (int64_t c = 0; c < c_.cols; ++c) {
      const double gate = in_.at(r, c), up = in_.at(r, c_.cols + c),
                   want = reference_swiglu(gate, up);
      expect_near(got.at(r, c), want, std::abs(want) + std::abs(gate * up) * kUnderflow,
                  {c_.storage, 1, kTerms}, "y");
    }
}

TEST_P(Swiglu, Backward) {
  const Matrix dy = random_matrix(c_.rows, c_.cols, c_.storage, 6);
  const Tensor gate_up = bench_.put(c_.storage, in_);
  bench_.ops().swiglu_backward(gate_up, bench_.put(c_.storage, dy));
  const Matrix got = bench_.get(gate_up);
  for (int64_t r = 0; r < c_.rows; ++r)
    for (int64_t c = 0; c < c_.cols; ++c) {
      const double gate = in_.at(r, c), up = in_.at(r, c_.cols + c), d = dy.at(r, c);
      const auto want = complex_step(
          {gate, up}, [&](const auto& x) { return d * reference_swiglu<Complex>(x[0], x[1]); });
      const double s = 1 / (1 + std::exp(-gate)) + kUnderflow;
      expect_near(got.at(r, c), want[0], d * up * s * (1 + std::abs(gate)), {c_.storage, 1, kTerms},
                  "dgate");
      expect_near(got.at(r, c_.cols + c), want[1], d * gate * s, {c_.storage, 1, kTerms}, "dup");
    }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Swiglu,
    testing::Values(SwigluCase{DType::kF32, 1, 1}, SwigluCase{DType::kF32, 3, 7},
                    SwigluCase{DType::kF32, 65, 33}, SwigluCase{DType::kF32, 2, 1000},
                    SwigluCase{DType::kF32, 0, 7}, SwigluCase{DType::kBF16, 1, 1},
                    SwigluCase{DType::kBF16, 3, 7}, SwigluCase{DType::kBF16, 65, 33},
                    SwigluCase{DType::kBF16, 2, 1000}),
    swiglu_case_name);

// Padding: columns that are +0 in gate and up stay +0 in both directions.
TEST(SwigluEdges, ZeroStaysPositiveZero) {
  OpBench bench;
  const Tensor gate_up = bench.put(DType::kF32, Matrix(2, 2 * 5)),
               out = bench.empty(DType::kF32, 2, 5);
  bench.ops().swiglu_forward(gate_up, out);
  for (const double y : bench.get(out).values) EXPECT_EQ(bits_of(float(y)), 0u);
  bench.ops().swiglu_backward(gate_up, bench.put(DType::kF32, Matrix(2, 5)));
  for (const double d : bench.get(gate_up).values) EXPECT_EQ(bits_of(float(d)), 0u);
}

}  // namespace
}  // namespace mpt::test
