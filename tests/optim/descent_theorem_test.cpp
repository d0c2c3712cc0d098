// The descent theorem of M+Adam on random quadratics, in FP64: an additive and a multiplicative
// gradient step taken together lower the loss by at least the amount that the theorem guarantees.
//
//   L(w) = 1/2 sum h_i (w_i - w*_i)^2,  g = grad L,  g_e = ln 2 w g
//   w' = w 2^z + u_a,  u_a = -eta_a g,  z = -eta_m g_e
//   L(w') <= L(w) - eta_a/2 (2 - L_a eta_a - L_ae eta_m) |g|^2
//                 - eta_m/2 (2 - L_e eta_m - L_ae eta_a) |g_e|^2
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include <gtest/gtest.h>

#include "support/draws.h"

namespace mpt {
namespace {

using std::numbers::ln2;

struct Quadratic {
  std::vector<double> h, optimum;

  [[nodiscard]] double loss(const std::vector<double>& w) const {
    double sum = 0;
    for (size_t i = 0; i < w.size(); ++i)
      sum += 0.5 * h[i] * (w[i] - optimum[i]) * (w[i] - optimum[i]);
    return sum;
  }
};

// Smoothness constants valid where |d| <= reach and every |z_i| <= 1.
struct Smoothness {
  double additive = 0, exponent = 0, mixed = 0;

  Smoothness(const Quadratic& q, const std::vector<double>& w, double reach) {
    for (size_t i = 0; i < w.size(); ++i) {
      const double a = 2 * std::fabs(w[i]);
      additive = std::max(additive, q.h[i]);
      mixed = std::max(mixed, ln2 * q.h[i] * a);
      exponent = std::max(exponent,
                          ln2 * ln2 * q.h[i] * (a * a + (a + reach + std::fabs(q.optimum[i])) * a));
    }
  }
};

struct Step {
  double eta_a, eta_m;
  std::vector<double> g, g_e;

  Step(const Quadratic& q, const std::vector<double>& w, double additive, double multiplicative)
      : eta_a(additive), eta_m(multiplicative) {
    for (size_t i = 0; i < w.size(); ++i) {
      g.push_back(q.h[i] * (w[i] - q.optimum[i]));
      g_e.push_back(ln2 * w[i] * g[i]);
    }
  }
  [[nodiscard]] std::vector<double> applied(const std::vector<double>& w) const {
    std::vector<double> next(w.size());
    for (size_t i = 0; i < w.size(); ++i)
      next[i] = w[i] * std::exp2(-eta_m * g_e[i]) - eta_a * g[i];
    return next;
  }
};

double square(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return sum;
}

// Returns false if the draw left the neighborhood in which the constants hold.
bool descends_as_promised(test::Draws& draws) {
  const auto n = size_t(1 + draws.index(6));
  constexpr double kReach = 2.0;
  Quadratic q;
  std::vector<double> w;
  for (size_t i = 0; i < n; ++i) {
    q.h.push_back(std::exp2(draws.uniform(-4, 3)));
    q.optimum.push_back(draws.uniform(-2, 2));
    w.push_back(draws.index(10) == 0 ? 0.0 : draws.uniform(-2, 2));
  }
  const Smoothness smooth(q, w, kReach);
  const double share = draws.uniform(0, 1), size = draws.uniform(0, 2);
  // eta_a and eta_m on a ray on which both conditions hold up to a size of 2.
  const double worst = std::max(smooth.additive * share + smooth.mixed * (1 - share),
                                smooth.exponent * (1 - share) + smooth.mixed * share);
  const Step step(q, w, size * share / worst, size * (1 - share) / worst);
  const double condition_a = 2 - smooth.additive * step.eta_a - smooth.mixed * step.eta_m;
  const double condition_e = 2 - smooth.exponent * step.eta_m - smooth.mixed * step.eta_a;
  if (step.eta_a * std::sqrt(square(step.g)) > kReach ||
      step.eta_m * std::sqrt(square(step.g_e)) > 1)
    return false;
  const double before = q.loss(w), after = q.loss(step.applied(w));
  const double promised = step.eta_a / 2 * condition_a * square(step.g) +
                          step.eta_m / 2 * condition_e * square(step.g_e);
  EXPECT_GE(condition_a, -1e-12);
  EXPECT_GE(condition_e, -1e-12);
  EXPECT_LE(after, before - promised + 1e-12 * std::max(1.0, before));
  return true;
}

TEST(DescentTheorem, HoldsOnRandomQuadratics) {
  test::Draws draws(12);
  int tested = 0;
  for (int trial = 0; trial < 40000 && tested < 12000; ++trial)
    tested += descends_as_promised(draws);
  EXPECT_GE(tested, 12000);
}

// The bound is not vacuous: with the multiplicative direction reversed it fails.
TEST(DescentTheorem, FailsForTheReversedDirection) {
  const Quadratic q{{1.0}, {0.5}};
  const std::vector<double> w{-1.0};
  const Step step(q, w, 0.0, -0.5);
  EXPECT_GT(q.loss(step.applied(w)), q.loss(w));
}

}  // namespace
}  // namespace mpt
