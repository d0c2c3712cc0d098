// Cross entropy and its gradient over the logits, with ignored targets, huge and non-finite logits.
#include <gtest/gtest.h>

#include "model/closeness.h"
#include "model/op_bench.h"
#include "model/reference.h"

namespace mpt::test {
namespace {

struct LossCase {
  DType storage;
  int64_t rows, cols;
  double size;  // of the logits
};

std::string loss_case_name(const testing::TestParamInfo<LossCase>& info) {
  return fmt::format("{}_{}x{}_size{}", name_of(info.param.storage), info.param.rows,
                     info.param.cols, int64_t(info.param.size));
}

double log_sum_exp(const std::vector<double>& logits) {
  return reference_cross_entropy<double>(logits, 0) + logits[0];
}

// The loss plus z_loss times the square of the logarithm of the sum.
template <class S>
S reference_with_z(const std::vector<S>& logits, int32_t target, double z_loss) {
  if (target < 0) return S(0);
  const S loss = reference_cross_entropy<S>(logits, target), lse = loss + logits[size_t(target)];
  return loss + z_loss * lse * lse;
}

std::vector<double> closed_form(const std::vector<double>& logits, int32_t target,
                                double z_loss = 0) {
  if (target < 0) return std::vector<double>(logits.size(), 0.0);
  std::vector<double> p = reference_softmax<double>(logits);
  for (double& x : p) x *= 1 + 2 * z_loss * log_sum_exp(logits);
  p[size_t(target)] -= 1;
  return p;
}

TEST(CrossEntropyReference, ClosedFormIsTheDerivative) {
  const auto logits = random_matrix(1, 7, DType::kF32, 1).row(0);
  for (const double z_loss : {0.0, 0.3})
    for (const int32_t target : {-1, 0, 3, 6}) {
      const auto want = complex_step(
          logits, [&](const auto& z) { return reference_with_z<Complex>(z, target, z_loss); });
      const auto got = closed_form(logits, target, z_loss);
      for (size_t c = 0; c < logits.size(); ++c) EXPECT_NEAR(got[c], want[c], 4e-15);
    }
}

class CrossEntropyOp : public testing::TestWithParam<LossCase> {
 protected:
  CrossEntropyOp() {
    for (double& z : logits_.values) z = rounded(z * c_.size, c_.storage);
    for (int64_t r = 0; r < c_.rows; ++r)
      targets_.push_back(r % 4 == 3 ? -1 : int32_t((r * 13) % c_.cols));
  }
  struct Result {
    Matrix losses, logits;
  };
  // A scale of 0 requests only losses.
  Result run(float gradient_scale, float z_loss = 0) {
    const Tensor logits = bench_.put(c_.storage, logits_),
                 losses = bench_.empty(DType::kF32, 1, c_.rows);
    Matrix scale(1, 1);
    scale.values = {gradient_scale};
    const float* const given =
        gradient_scale == 0 ? nullptr : bench_.put(DType::kF32, scale).as<float>();
    bench_.ops().cross_entropy({.logits = logits,
                                .targets = bench_.put(targets_),
                                .losses = losses,
                                .gradient_scale = given,
                                .z_loss = z_loss});
    return {bench_.get(losses), bench_.get(logits)};
  }
  void expect_losses(const Matrix& losses) {
    for (int64_t r = 0; r < c_.rows; ++r) {
      const std::vector<double> z = logits_.row(r);
      const double want = reference_cross_entropy<double>(z, targets_[size_t(r)]);
      if (targets_[size_t(r)] < 0) {
        EXPECT_EQ(losses.at(0, r), 0);
        continue;
      }
      const double largest = 1 + std::abs(want) + std::log(double(c_.cols));
      expect_near(losses.at(0, r), want, largest, {DType::kF32, 1, terms()}, "loss");
    }
  }
  void expect_gradient(float scale, float z_loss) {
    const Result got = run(scale, z_loss);
    expect_losses(got.losses);
    for (int64_t r = 0; r < c_.rows; ++r) {
      const int32_t target = targets_[size_t(r)];
      const std::vector<double> z = logits_.row(r), want = closed_form(z, target, z_loss),
                                softmax = reference_softmax<double>(z);
      const double top = *std::ranges::max_element(z), lse = log_sum_exp(z);
      // Terms of the softmax's factor, which may cancel.
      const double factor = 1 + 2 * double(z_loss) * (1 + std::abs(lse));
      for (int64_t c = 0; c < c_.cols; ++c) {
        const double term =
            softmax[size_t(c)] * factor * (1 + top - z[size_t(c)]) + 0x1p-126 / kFp32Rounding;
        expect_near(got.logits.at(r, c), scale * want[size_t(c)],
                    scale * (target < 0 ? 0 : (c == target ? 1 : 0) + term),
                    {c_.storage, 1, terms()}, "dz");
      }
    }
  }
  [[nodiscard]] double terms() const { return double(c_.cols) / 32 + 16; }

  LossCase c_ = GetParam();
  OpBench bench_;
  Matrix logits_ = random_matrix(c_.rows, c_.cols, DType::kF32, 8);
  std::vector<int32_t> targets_;
};

TEST_P(CrossEntropyOp, LossOnlyLeavesTheLogits) {
  const Result got = run(0.0f);
  expect_losses(got.losses);
  EXPECT_EQ(got.logits.values, logits_.values);
}

// With and without z-loss, which does not change the losses.
TEST_P(CrossEntropyOp, Gradient) {
  for (const float z_loss : {0.0f, 1e-3f, 0.25f}) expect_gradient(1.0f / 37, z_loss);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CrossEntropyOp,
    testing::Values(LossCase{DType::kF32, 1, 1, 1}, LossCase{DType::kF32, 5, 7, 1},
                    LossCase{DType::kF32, 65, 33, 3}, LossCase{DType::kF32, 4, 1000, 3},
                    LossCase{DType::kF32, 6, 33, 1e4}, LossCase{DType::kF32, 0, 33, 1},
                    LossCase{DType::kBF16, 5, 7, 1}, LossCase{DType::kBF16, 65, 33, 3},
                    LossCase{DType::kBF16, 4, 1000, 3}, LossCase{DType::kBF16, 6, 33, 1e4}),
    loss_case_name);

struct OneRow {
  double loss;
  std::vector<double> gradient;
};

OneRow one_row(const std::vector<double>& logits, int32_t target) {
  OpBench bench;
  Matrix m(1, int64_t(logits.size()));
  m.values = logits;
  const Tensor z = bench.put(DType::kF32, m), loss = bench.empty(DType::kF32, 1, 1);
  Matrix one(1, 1);
  one.values = {1};
  bench.ops().cross_entropy({.logits = z,
                             .targets = bench.put({target}),
                             .losses = loss,
                             .gradient_scale = bench.put(DType::kF32, one).as<float>()});
  return {bench.get(loss).at(0, 0), bench.get(z).values};
}

TEST(CrossEntropyEdges, HugeLogits) {
  EXPECT_EQ(one_row({1e4, -1e4, 0}, 0).loss, 0);
  EXPECT_EQ(one_row({1e4, -1e4, 0}, 1).loss, 2e4);
  EXPECT_EQ(one_row({1e4, -1e4, 0}, 1).gradient, (std::vector<double>{1, -1, 0}));
  EXPECT_NEAR(one_row({1e4, 1e4, 1e4}, 2).loss, std::log(3.0), 4 * kFp32Rounding);
  EXPECT_EQ(one_row({3e38, -3e38}, 0).loss, 0);
}

TEST(CrossEntropyEdges, AMinusInfiniteLogitHasNoProbability) {
  const OneRow got = one_row({0, -INFINITY, 0}, 0);
  EXPECT_NEAR(got.loss, std::log(2.0), 2 * kFp32Rounding);
  EXPECT_EQ(got.gradient, (std::vector<double>{-0.5, 0, 0.5}));
}

TEST(SumLosses, IsExactInFp64) {
  OpBench bench;
  Matrix losses(1, 1000);
  double sum = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    losses.values[size_t(i)] = double(float(1.0 / double(i + 3)));
    sum += losses.values[size_t(i)];
  }
  const Tensor result = bench.empty(DType::kF64, 1, 1);
  bench.ops().sum_losses(bench.put(DType::kF32, losses), result);
  // Terms are positive: each of the roundings costs at most 2^-53 of the sum.
  EXPECT_NEAR(*result.as<double>(), sum, 1000 * 0x1p-53 * sum);
}

// A broken row must be visible in the loss, wherever it broke; an ignored one is ignored.
TEST(CrossEntropyEdges, NonFiniteLogitsReachTheLoss) {
  for (const double bad : {double(NAN), double(INFINITY)})
    for (const size_t at : {size_t{0}, size_t{31}, size_t{32}, size_t{69}}) {
      std::vector<double> logits(70, 0.5);
      logits[at] = bad;
      EXPECT_FALSE(std::isfinite(one_row(logits, 5).loss)) << bad << " at " << at;
      EXPECT_EQ(one_row(logits, -1).loss, 0);
      EXPECT_EQ(one_row(logits, -1).gradient, std::vector<double>(70, 0.0));
    }
}

}  // namespace
}  // namespace mpt::test
