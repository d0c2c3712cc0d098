// RMSNorm with its residual addition: values against FP64, gradients against closed forms proved by
// the complex step.
#include <gtest/gtest.h>

#include "model/closeness.h"
#include "model/op_bench.h"
#include "model/reference.h"

namespace mpt::test {
namespace {

constexpr double kEps = 1e-6;

double inverse_rms(const std::vector<double>& x) {
  return 1 / std::sqrt(dot<double>(x, x) / double(x.size()) + kEps);
}

struct NormGradient {
  std::vector<double> dx, dgain;
  std::vector<double> largest;  // of the terms of dx that may cancel
};

// Gradients of sum_c dy_c y_c.
NormGradient closed_form(const std::vector<double>& x, const std::vector<double>& gain,
                         const std::vector<double>& dy) {
  const double inverse = inverse_rms(x);
  double mean = 0, mean_size = 0;
  for (size_t c = 0; c < x.size(); ++c) {
    mean += dy[c] * gain[c] * x[c] * inverse / double(x.size());
    mean_size += std::abs(dy[c] * gain[c] * x[c]) * inverse / double(x.size());
  }
  NormGradient g{.dx = x, .dgain = x, .largest = x};
  for (size_t c = 0; c < x.size(); ++c) {
    const double xhat = x[c] * inverse;
    g.dx[c] = inverse * (dy[c] * gain[c] - xhat * mean);
    g.largest[c] = inverse * (std::abs(dy[c] * gain[c]) + std::abs(xhat) * mean_size);
    g.dgain[c] = dy[c] * xhat;
  }
  return g;
}

TEST(RmsNormReference, ClosedFormIsTheDerivative) {
  for (const int64_t width : {1, 7, 33}) {
    const auto x = random_matrix(1, width, DType::kF32, 1).row(0),
               gain = random_matrix(1, width, DType::kF32, 2).row(0);
    const auto dy = random_matrix(1, width, DType::kF32, 3).row(0);
    const auto weighted = [&](const std::vector<Complex>& in, const std::vector<Complex>& g) {
      return dot<Complex>(reference_rms_norm<Complex>(in, g, kEps),
                          std::vector<Complex>(dy.begin(), dy.end()));
    };
    const std::vector<Complex> fixed_x(x.begin(), x.end()), fixed_gain(gain.begin(), gain.end());
    const NormGradient g = closed_form(x, gain, dy);
    const auto dx = complex_step(x, [&](const auto& p) { return weighted(p, fixed_gain); });
    const auto dgain = complex_step(gain, [&](const auto& p) { return weighted(fixed_x, p); });
    for (size_t c = 0; c < x.size(); ++c) {
      EXPECT_NEAR(dx[c], g.dx[c], 1e-14 * g.largest[c]);
      EXPECT_NEAR(dgain[c], g.dgain[c], 1e-14 * std::abs(g.dgain[c]));
    }
  }
}

struct NormCase {
  DType storage;
  int64_t rows, cols;
};

std::vector<NormCase> norm_cases() {
  std::vector<NormCase> all;
  for (const DType storage : {DType::kF32, DType::kBF16}) {
    for (const int64_t cols : {1, 7, 33, 1000}) all.push_back({storage, 3, cols});
    for (const int64_t rows : {1, 63, 64, 65, 130}) all.push_back({storage, rows, 33});
  }
  return all;
}

std::string norm_case_name(const testing::TestParamInfo<NormCase>& info) {
  return fmt::format("{}_{}x{}", name_of(info.param.storage), info.param.rows, info.param.cols);
}

// FP32 roundings of a sum of `cols` terms by 32 running sums and a tree, and of the few other
// operations.
double terms_of(int64_t cols) { return double(cols) / 32 + 16; }

class RmsNorm : public testing::TestWithParam<NormCase> {
 protected:
  Matrix input(uint64_t seed) const { return random_matrix(c_.rows, c_.cols, c_.storage, seed); }

  NormCase c_ = GetParam();
  OpBench bench_;
  Matrix gain_ = random_matrix(1, c_.cols, c_.storage, 9);
};

TEST_P(RmsNorm, Forward) {
  const Matrix a = input(1), b = input(2);
  const Tensor sum = bench_.empty(c_.storage, c_.rows, c_.cols),
               out = bench_.empty(c_.storage, c_.rows, c_.cols);
  const Tensor inv_rms = bench_.empty(DType::kF32, 1, c_.rows);
  bench_.ops().norm_forward({.residual = bench_.put(c_.storage, a),
                             .branch = bench_.put(c_.storage, b),
                             .sum = sum,
                             .out = out,
                             .inv_rms = inv_rms,
                             .gain = bench_.put(c_.storage, gain_),
                             .eps = float(kEps)});
  const Matrix x = bench_.get(sum), y = bench_.get(out), inverse = bench_.get(inv_rms);
  for (int64_t r = 0; r < c_.rows; ++r) {
    const auto want = reference_rms_norm<double>(x.row(r), gain_.values, kEps);
    const double rms = inverse_rms(x.row(r));
    expect_near(inverse.at(0, r), rms, rms, {DType::kF32, 0, terms_of(c_.cols)}, "1 / rms");
    for (int64_t c = 0; c < c_.cols; ++c) {
      EXPECT_EQ(x.at(r, c), rounded(double(float(a.at(r, c)) + float(b.at(r, c))), c_.storage));
      expect_near(y.at(r, c), want[size_t(c)], want[size_t(c)], {c_.storage, 2, terms_of(c_.cols)},
                  "y");
    }
  }
}

// Rounds at the same places as Hugging Face: x / rms to the storage type, then its product with the
// gain.
TEST_P(RmsNorm, RoundsBeforeTheGain) {
  const Matrix x = input(1);
  const Tensor out = bench_.empty(c_.storage, c_.rows, c_.cols),
               inv_rms = bench_.empty(DType::kF32, 1, c_.rows);
  bench_.ops().norm_forward({.residual = bench_.put(c_.storage, x),
                             .branch = {},
                             .sum = {},
                             .out = out,
                             .inv_rms = inv_rms,
                             .gain = bench_.put(c_.storage, gain_),
                             .eps = float(kEps)});
  const Matrix y = bench_.get(out), inverse = bench_.get(inv_rms);
  for (int64_t r = 0; r < c_.rows; ++r)
    for (int64_t c = 0; c < c_.cols; ++c) {
      const double normed =
          rounded(double(float(x.at(r, c)) * float(inverse.at(0, r))), c_.storage);
      EXPECT_EQ(y.at(r, c), rounded(double(float(normed) * float(gain_.at(0, c))), c_.storage));
    }
}

TEST_P(RmsNorm, WithoutABranchTheSumIsNotWritten) {
  const Matrix a = input(1);
  const Tensor out = bench_.empty(c_.storage, c_.rows, c_.cols),
               inv_rms = bench_.empty(DType::kF32, 1, c_.rows);
  bench_.ops().norm_forward({.residual = bench_.put(c_.storage, a),
                             .branch = {},
                             .sum = {},
                             .out = out,
                             .inv_rms = inv_rms,
                             .gain = bench_.put(c_.storage, gain_),
                             .eps = float(kEps)});
  const Matrix y = bench_.get(out);
  for (int64_t r = 0; r < c_.rows; ++r) {
    const auto want = reference_rms_norm<double>(a.row(r), gain_.values, kEps);
    for (int64_t c = 0; c < c_.cols; ++c)
      expect_near(y.at(r, c), want[size_t(c)], want[size_t(c)], {c_.storage, 2, terms_of(c_.cols)},
                  "y");
  }
}

// The data from which others compute its output does not depend on whether it writes the output
// itself.
TEST_P(RmsNorm, WithoutAnOutput) {
  const auto left_by = [&](const Tensor& out) {
    const Tensor sum = bench_.empty(c_.storage, c_.rows, c_.cols),
                 inv_rms = bench_.empty(DType::kF32, 1, c_.rows);
    bench_.ops().norm_forward({.residual = bench_.put(c_.storage, input(1)),
                               .branch = bench_.put(c_.storage, input(2)),
                               .sum = sum,
                               .out = out,
                               .inv_rms = inv_rms,
                               .gain = bench_.put(c_.storage, gain_),
                               .eps = float(kEps)});
    return std::pair(bench_.get(sum).values, bench_.get(inv_rms).values);
  };
  EXPECT_EQ(left_by({}), left_by(bench_.empty(c_.storage, c_.rows, c_.cols)));
}

struct GainCase {
  DType container;
  Accumulate accumulate;
};

TEST_P(RmsNorm, Backward) {
  const Matrix x = input(1), dy = input(2), before = input(3);
  const Matrix gain_before = random_matrix(1, c_.cols, DType::kBF16, 4);
  Matrix inverse(1, c_.rows);
  for (int64_t r = 0; r < c_.rows; ++r)
    inverse.at(0, r) = rounded(inverse_rms(x.row(r)), DType::kF32);
  for (const auto& [container, accumulate] :
       {GainCase{DType::kF32, Accumulate::kYes}, GainCase{DType::kF32, Accumulate::kNo},
        GainCase{DType::kBF16, Accumulate::kYes}, GainCase{DType::kBF16, Accumulate::kNo}}) {
    const Tensor d_x = bench_.put(c_.storage, before), d_gain = bench_.put(container, gain_before);
    bench_.ops().norm_backward(
        {.d_out = bench_.put(c_.storage, dy),
         .x = bench_.put(c_.storage, x),
         .inv_rms = bench_.put(DType::kF32, inverse),
         .gain = bench_.put(c_.storage, gain_),
         .d_x = d_x,
         .d_gain_partial = bench_.empty(DType::kF32, bench_.ops().norm_chunks(c_.rows), c_.cols),
         .d_gain = d_gain,
         .accumulate = accumulate});
    const Matrix got = bench_.get(d_x), got_gain = bench_.get(d_gain);
    Matrix gain = accumulate == Accumulate::kYes ? gain_before : Matrix(1, c_.cols),
           gain_size(1, c_.cols);
    for (int64_t r = 0; r < c_.rows; ++r) {
      const NormGradient g = closed_form(x.row(r), gain_.values, dy.row(r));
      for (int64_t c = 0; c < c_.cols; ++c) {
        const double old = before.at(r, c);
        expect_near(got.at(r, c), old + g.dx[size_t(c)], std::abs(old) + g.largest[size_t(c)],
                    {c_.storage, 1, terms_of(c_.cols)}, "dx");
        gain.at(0, c) += g.dgain[size_t(c)];
        gain_size.at(0, c) += std::abs(g.dgain[size_t(c)]);
      }
    }
    for (int64_t c = 0; c < c_.cols; ++c)
      expect_near(got_gain.at(0, c), gain.at(0, c),
                  gain_size.at(0, c) + std::abs(gain_before.at(0, c)),
                  {container, 1, double(c_.rows) + 8}, "dgain");
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, RmsNorm, testing::ValuesIn(norm_cases()), norm_case_name);

TEST(RmsNormEdges, ChunksOfRows) {
  OpBench bench;
  EXPECT_EQ(bench.ops().norm_chunks(0), 0);
  EXPECT_EQ(bench.ops().norm_chunks(1), 1);
  EXPECT_EQ(bench.ops().norm_chunks(64), 1);
  EXPECT_EQ(bench.ops().norm_chunks(65), 2);
}

TEST(RmsNormEdges, NoRowsGiveNoGradient) {
  OpBench bench;
  const Tensor d_gain = bench.put(DType::kF32, random_matrix(1, 7, DType::kF32, 1));
  const auto empty = [&] { return bench.empty(DType::kF32, 0, 7); };
  bench.ops().norm_backward({.d_out = empty(),
                             .x = empty(),
                             .inv_rms = bench.empty(DType::kF32, 1, 0),
                             .gain = bench.empty(DType::kF32, 1, 7),
                             .d_x = empty(),
                             .d_gain_partial = empty(),
                             .d_gain = d_gain,
                             .accumulate = Accumulate::kNo});
  EXPECT_EQ(bench.get(d_gain).values, std::vector<double>(7, 0.0));
}

// eps keeps a row of zeros finite: y = 0, 1 / rms = eps^-1/2.
TEST(RmsNormEdges, ARowOfZeros) {
  OpBench bench;
  const Tensor out = bench.empty(DType::kF32, 1, 33), inv_rms = bench.empty(DType::kF32, 1, 1);
  bench.ops().norm_forward({.residual = bench.put(DType::kF32, Matrix(1, 33)),
                            .branch = {},
                            .sum = {},
                            .out = out,
                            .inv_rms = inv_rms,
                            .gain = bench.put(DType::kF32, random_matrix(1, 33, DType::kF32, 1)),
                            .eps = float(kEps)});
  EXPECT_EQ(bench.get(out).values, std::vector<double>(33, 0.0));
  EXPECT_NEAR(bench.get(inv_rms).at(0, 0), 1000, 1000 * 4 * kFp32Rounding);
}

}  // namespace
}  // namespace mpt::test
