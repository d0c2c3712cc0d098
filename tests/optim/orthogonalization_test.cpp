// Muon: its orthogonalized steps against FP64, its directions' singular values, its AdamW for the
// rest.
#include "optim/orthogonalization.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "optim/optimizer_fixture.h"
#include "support/draws.h"

namespace mpt {
namespace {

using test::Draws;
using test::element;
using test::fill_tensor;
using test::FlatConfig;
using test::OptimizerRun;

constexpr MatrixShape kShapes[] = {{16, 16},  {24, 40}, {40, 24}, {70, 300},
                                   {300, 70}, {1, 9},   {9, 1}};

FlatConfig muon_config() {
  FlatConfig config;
  config.rule = "muon";
  config.lr_additive = 1e-2;
  config.weight_decay_additive = 0.1;
  return config;
}

test::RunSetup fp32_setup(const FlatConfig& config) {
  return {.config = config,
          .options = {.state = Format::kF32},
          .encoding = {.format = WeightFormat::kF32}};
}

// A row-major matrix in FP64.
struct Matrix {
  int64_t rows, cols;
  std::vector<double> at = std::vector<double>(size_t(rows * cols));

  double& operator()(int64_t r, int64_t c) { return at[size_t(r * cols + c)]; }
  double operator()(int64_t r, int64_t c) const { return at[size_t(r * cols + c)]; }
};
Matrix transposed(const Matrix& m) {
  Matrix t{m.cols, m.rows};
  for (int64_t r = 0; r < m.rows; ++r)
    for (int64_t c = 0; c < m.cols; ++c) t(c, r) = m(r, c);
  return t;
}
Matrix product(const Matrix& a, const Matrix& b) {
  Matrix d{a.rows, b.cols};
  for (int64_t r = 0; r < a.rows; ++r)
    for (int64_t k = 0; k < a.cols; ++k)
      for (int64_t c = 0; c < b.cols; ++c) d(r, c) += a(r, k) * b(k, c);
  return d;
}
double norm(const Matrix& m) {
  double sum = 0;
  for (const double x : m.at) sum += x * x;
  return std::sqrt(sum);
}

// The published iteration on the matrix or its transpose, whichever has fewer rows.
Matrix orthogonalized(Matrix x) {
  const bool tall = x.rows > x.cols;
  if (tall) x = transposed(x);
  const double size = norm(x) + 1e-7;
  for (double& value : x.at) value /= size;
  for (int i = 0; i < 5; ++i) {
    const Matrix a = product(x, transposed(x)), aa = product(a, a), ax = product(a, x),
                 aax = product(aa, x);
    for (size_t k = 0; k < x.at.size(); ++k)
      x.at[k] = 3.4445 * x.at[k] - 4.7750 * ax.at[k] + 2.0315 * aax.at[k];
  }
  return tall ? transposed(x) : x;
}

// The step as published, in FP64.
struct Reference {
  FlatConfig config;
  Matrix w, m;

  void step(const Matrix& g) {
    Matrix u = m;
    for (size_t k = 0; k < w.at.size(); ++k) {
      m.at[k] = config.momentum * m.at[k] + (1 - config.momentum) * g.at[k];
      u.at[k] =
          config.nesterov ? config.momentum * m.at[k] + (1 - config.momentum) * g.at[k] : m.at[k];
    }
    const Matrix o = orthogonalized(u);
    const double scale = 0.2 * std::sqrt(double(std::max(w.rows, w.cols)));
    for (size_t k = 0; k < w.at.size(); ++k)
      w.at[k] -= config.lr_additive * (scale * o.at[k] + config.weight_decay_additive * w.at[k]);
  }
};

TEST(Muon, StepsAreThoseOfFp64) {
  for (const bool nesterov : {true, false})
    for (const auto& [rows, cols] : kShapes) {
      SCOPED_TRACE(fmt::format("[{},{}] nesterov {}", rows, cols, nesterov));
      FlatConfig config = muon_config();
      config.nesterov = nesterov;
      OptimizerRun run(fp32_setup(config), {{.rows = rows, .cols = cols}});
      Draws draws(17);
      Reference reference{config, {rows, cols}, {rows, cols}};
      fill_tensor(run.weights(), [&](int64_t r, int64_t c) {
        return float(reference.w(r, c) = double(draws.bell(0.5)));
      });
      for (int t = 1; t <= 3; ++t) {
        Matrix g{rows, cols};
        fill_tensor(run.gradient(), [&](int64_t r, int64_t c) {
          return float(g(r, c) = double(draws.bell(0.01)));
        });
        run.step(t);
        reference.step(g);
        // Five iterations of three products multiply relative errors by about 3.4 each at most.
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t c = 0; c < cols; ++c)
            ASSERT_NEAR(double(element(run.weights(), r, c)), reference.w(r, c), 2e-6)
                << "t " << t << " at " << r << ", " << c;
      }
    }
}

// U^T U of a wide gradient's direction is about 0.2^2 max(rows, cols) times 1 on its rows.
TEST(Muon, SingularValuesAreAboutEqual) {
  FlatConfig config = muon_config();
  config.weight_decay_additive = 0;
  config.lr_additive = 1;
  constexpr int64_t kRows = 24, kCols = 60;
  OptimizerRun run(fp32_setup(config), {{.rows = kRows, .cols = kCols}});
  Draws draws(3);
  // Rows of very different sizes, so that their lengths before are far from equal.
  fill_tensor(run.gradient(), [&](int64_t r, int64_t) { return draws.bell(0.01 / double(1 + r)); });
  run.step(1);
  const double wanted = 0.2 * std::sqrt(double(kCols));
  for (int64_t r = 0; r < kRows; ++r) {
    double square = 0;
    for (int64_t c = 0; c < kCols; ++c)
      square += double(element(run.weights(), r, c)) * double(element(run.weights(), r, c));
    EXPECT_GT(std::sqrt(square), 0.6 * wanted) << r;
    EXPECT_LT(std::sqrt(square), 1.3 * wanted) << r;
  }
}

TEST(Muon, NoGradientNoStep) {
  FlatConfig config = muon_config();
  config.weight_decay_additive = 0;
  OptimizerRun run(fp32_setup(config), {{.rows = 16, .cols = 32}});
  fill_tensor(run.weights(), [](int64_t, int64_t) { return 0.25f; });
  run.step(1);
  for (const uint32_t bits : test::bits_of_tensor(run.weights())) ASSERT_EQ(float_of(bits), 0.25f);
}

TEST(Muon, TheRestTakesStepsOfAdamW) {
  const std::vector<test::TargetShape> shapes{
      {.rows = 30, .cols = 20, .matrix_kind = ParamKind::kEmbedding}, {.cols = 33, .rank = 1}};
  const auto after_steps = [&](const std::string& rule) {
    FlatConfig config = muon_config();
    config.rule = rule;
    OptimizerRun run(fp32_setup(config), shapes);
    Draws draws(5);
    for (size_t i = 0; i < shapes.size(); ++i)
      run.encode(i, [&](int64_t, int64_t) { return draws.bell(0.5); });
    for (int t = 1; t <= 4; ++t) {
      for (size_t i = 0; i < shapes.size(); ++i)
        run.fill_gradient(i, [&](int64_t, int64_t) { return draws.bell(0.01); });
      run.step(t);
    }
    return run.everything();
  };
  EXPECT_EQ(after_steps("muon"), after_steps("adamw"));
}

}  // namespace
}  // namespace mpt
