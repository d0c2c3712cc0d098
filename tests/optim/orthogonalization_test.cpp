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

constexpr MatrixShape kMatrices[] = {{16, 16},  {24, 40}, {40, 24}, {70, 300},
                                     {300, 70}, {1, 9},   {9, 1}};

FlatConfig muon_config() {
  FlatConfig config;
  config.rule = "muon";
  config.lr_additive = 1e-2;
  config.weight_decay_additive = 0.1;
  return config;
}

test::RunSetup plain_setup(const FlatConfig& config) {
  return {.config = config,
          .options = {.state = Format::kF32},
          .encoding = {.format = WeightFormat::kF32}};
}

// A row-major matrix.
template <class T>
struct Matrix {
  int64_t rows, cols;
  std::vector<T> at = std::vector<T>(size_t(rows * cols));

  T& operator()(int64_t r, int64_t c) { return at[size_t(r * cols + c)]; }
  T operator()(int64_t r, int64_t c) const { return at[size_t(r * cols + c)]; }
};
template <class T>
Matrix<T> transposed(const Matrix<T>& m) {
  Matrix<T> t{m.cols, m.rows};
  for (int64_t r = 0; r < m.rows; ++r)
    for (int64_t c = 0; c < m.cols; ++c) t(c, r) = m(r, c);
  return t;
}
template <class T>
Matrix<T> product(const Matrix<T>& a, const Matrix<T>& b) {
  Matrix<T> d{a.rows, b.cols};
  for (int64_t r = 0; r < a.rows; ++r)
    for (int64_t k = 0; k < a.cols; ++k)
      for (int64_t c = 0; c < b.cols; ++c) d(r, c) += a(r, k) * b(k, c);
  return d;
}
template <class T>
T norm(const Matrix<T>& m) {
  double sum = 0;
  for (const T x : m.at) sum += double(x) * double(x);
  return T(std::sqrt(sum));
}
template <class T>
double largest(const Matrix<T>& m) {
  double most = 0;
  for (const T x : m.at) most = std::max(most, std::fabs(double(x)));
  return most;
}
template <class T, class U>
double largest_difference(const Matrix<T>& a, const Matrix<U>& b) {
  double most = 0;
  for (size_t k = 0; k < a.at.size(); ++k)
    most = std::max(most, std::fabs(double(a.at[k]) - double(b.at[k])));
  return most;
}

// Applies the published iteration to the matrix or its transpose, whichever has fewer rows.
template <class T>
Matrix<T> orthogonalized(Matrix<T> x) {
  const bool tall = x.rows > x.cols;
  if (tall) x = transposed(x);
  const T size = norm(x) + T(1e-7);
  for (T& value : x.at) value /= size;
  for (int i = 0; i < 5; ++i) {
    const Matrix<T> a = product(x, transposed(x)), aa = product(a, a), ax = product(a, x),
                    aax = product(aa, x);
    for (size_t k = 0; k < x.at.size(); ++k)
      x.at[k] = T(3.4445) * x.at[k] - T(4.7750) * ax.at[k] + T(2.0315) * aax.at[k];
  }
  return tall ? transposed(x) : x;
}

// The published step, with all arithmetic in T.
template <class T>
struct MuonReference {
  FlatConfig config;
  Matrix<T> w, m;

  void step(const Matrix<float>& gradient, float scale_of_gradient) {
    const auto lr = T(config.lr_additive), decay = T(config.weight_decay_additive),
               beta = T(config.momentum);
    Matrix<T> u = m;
    for (size_t k = 0; k < w.at.size(); ++k) {
      const T g = T(scale_of_gradient) * T(gradient.at[k]);
      m.at[k] = beta * m.at[k] + (1 - beta) * g;
      u.at[k] = config.nesterov ? beta * m.at[k] + (1 - beta) * g : m.at[k];
    }
    const Matrix<T> o = orthogonalized(u);
    const T scale = T(0.2) * std::sqrt(T(std::max(w.rows, w.cols)));
    for (size_t k = 0; k < w.at.size(); ++k) w.at[k] -= lr * (scale * o.at[k] + decay * w.at[k]);
  }
};

Matrix<float> matrix_of(const Tensor& tensor) {
  Matrix<float> m{tensor.rows, tensor.cols};
  for (int64_t r = 0; r < m.rows; ++r)
    for (int64_t c = 0; c < m.cols; ++c) m(r, c) = element(tensor, r, c);
  return m;
}
template <class T>
MuonReference<T> reference_of(const FlatConfig& config, const Matrix<float>& w) {
  MuonReference<T> reference{config, {w.rows, w.cols}, {w.rows, w.cols}};
  std::ranges::copy(w.at, reference.w.at.begin());
  return reference;
}

// The error of the same steps in FP32 with plain sums sets the tolerance, and each step rounds the
// weight once.
TEST(Muon, StepsAreThoseOfFp64) {
  for (const bool nesterov : {true, false})
    for (const auto& [rows, cols] : kMatrices) {
      SCOPED_TRACE(fmt::format("[{},{}] nesterov {}", rows, cols, nesterov));
      FlatConfig config = muon_config();
      config.nesterov = nesterov;
      OptimizerRun run(plain_setup(config), {{.rows = rows, .cols = cols}});
      Draws draws(17);
      fill_tensor(run.weights(), [&](int64_t, int64_t) { return draws.bell(0.5); });
      auto exact = reference_of<double>(config, matrix_of(run.weights()));
      auto plain = reference_of<float>(config, matrix_of(run.weights()));
      for (int t = 1; t <= 3; ++t) {
        const float clip = t == 2 ? 0.05f : 1.0f;
        fill_tensor(run.gradient(), [&](int64_t, int64_t) { return draws.bell(0.01); });
        run.step(t, clip);
        exact.step(matrix_of(run.gradient()), clip);
        plain.step(matrix_of(run.gradient()), clip);
        ASSERT_LE(largest_difference(matrix_of(run.weights()), exact.w),
                  4 * largest_difference(plain.w, exact.w) + t * 0x1p-24 * largest(exact.w))
            << "t " << t;
      }
    }
}

// U^T U of a wide gradient's direction is about 0.2^2 max(rows, cols) times 1 on its rows.
TEST(Muon, SingularValuesAreAboutEqual) {
  FlatConfig config = muon_config();
  config.weight_decay_additive = 0;
  config.lr_additive = 1;
  constexpr int64_t kRows = 24, kCols = 60;
  OptimizerRun run(plain_setup(config), {{.rows = kRows, .cols = kCols}});
  Draws draws(3);
  // Rows of very different sizes, so that their previous lengths are far from equal.
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
  OptimizerRun run(plain_setup(config), {{.rows = 16, .cols = 32}});
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
    OptimizerRun run(plain_setup(config), shapes);
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
