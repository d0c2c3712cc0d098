// Compiled without contraction (CMakeLists.txt), so that every machine follows the same weights.
#include "toy/toy_fit.h"

#include <algorithm>
#include <cmath>

#include "core/bf16.h"
#include "core/check.h"
#include "core/normal.h"
#include "core/random.h"
#include "core/scalar_math.h"

namespace mpt {
namespace {

constexpr float kLn2 = 0.69314718056f;
constexpr float kTau = 1e-8f;
constexpr float kMostRelativeStep = 0.75f;
constexpr double kLargest = 900;  // largest of the large targets, in standard deviations

RandomCounter toy_counter(ToyRegime regime, uint64_t seed, int64_t step) {
  return {.seed = seed,
          .tensor = static_cast<uint32_t>(regime),
          .row = 0,
          .step = static_cast<uint32_t>(step),
          .stream = kSyntheticStream};
}

struct ToyEntry {
  double target, start, scale;
};

ToyEntry small_entry(double z) { return {.target = 1e-4 * z, .start = 0, .scale = 1e8}; }
ToyEntry large_entry(double z) {
  return {.target = kLargest * std::max(std::fabs(z), 1 / kLargest), .start = 100, .scale = 1e-7};
}

ToyEntry make_entry(ToyRegime regime, int64_t index, uint32_t word, double z) {
  const double sign = word >> 31 ? -1 : 1;
  switch (regime) {
    case ToyRegime::kSignFlip:
      return {.target = sign, .start = -sign, .scale = 1};
    case ToyRegime::kZeroRevival:
      return {.target = sign, .start = 0, .scale = 1};
    case ToyRegime::kSmall:
      return small_entry(z);
    case ToyRegime::kLarge:
      return large_entry(z);
    case ToyRegime::kMixed:
      return index < kToyEntries / 2 ? small_entry(z) : large_entry(z);
  }
  throw LogicError("unknown toy regime");
}

// sqrt(c) (w - w*)^2
template <class Real>
double root_term(const ToyProblem& problem, size_t i, Real weight) {
  const double d = double(weight) - double(problem.target[i]);
  return std::sqrt(double(problem.scale[i])) * (d * d);
}

// sum_i share_i sqrt(c_i) d_i^2
template <class Real>
double mean_root_term(const ToyProblem& problem, std::span<const float> shares,
                      std::span<const Real> weights) {
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i)
    sum += double(shares[i]) * root_term(problem, i, weights[i]);
  return sum;
}

struct Transitions {
  int64_t sign_changes = 0, zeros_left = 0, zeros_entered = 0;
};

// Makes one step of all weights; T is their storage type.
template <class T>
Transitions step_all(const ToyFitOptions& options, std::span<const float> gradient,
                     std::span<float> weights) {
  const float rate = static_cast<float>(options.rate);
  Transitions seen;
  for (size_t i = 0; i < weights.size(); ++i) {
    const float before = weights[i];
    const float after = rounded_to<T>(toy_update(options.rule, before, gradient[i], rate));
    weights[i] = after;
    seen.sign_changes += (before < 0 && after > 0) || (before > 0 && after < 0);
    seen.zeros_left += before == 0 && after != 0;
    seen.zeros_entered += before != 0 && after == 0;
  }
  return seen;
}

Transitions step_all(const ToyFitOptions& options, std::span<const float> gradient,
                     std::span<float> weights) {
  return options.weights == Format::kBF16 ? step_all<bf16>(options, gradient, weights)
                                          : step_all<float>(options, gradient, weights);
}

}  // namespace

ToyProblem make_toy_problem(ToyRegime regime, uint64_t seed) {
  const RandomCounter counter = toy_counter(regime, seed, 0);
  ToyProblem problem;
  for (int64_t i = 0; i < kToyEntries; ++i) {
    const PhiloxBlock block = counter.block(static_cast<uint32_t>(i / 4));
    const size_t lane = size_t(i % 4);
    const ToyEntry entry = make_entry(regime, i, block.word[lane], normals_of(block)[lane]);
    problem.target.push_back(static_cast<float>(entry.target));
    problem.start.push_back(static_cast<float>(entry.start));
    problem.scale.push_back(static_cast<float>(entry.scale));
  }
  return problem;
}

std::vector<float> toy_shares(ToyRegime regime, uint64_t seed, int64_t step, int64_t batch) {
  const RandomCounter counter = toy_counter(regime, seed, step);
  std::vector<int32_t> times(kToyEntries, 0);
  for (int64_t first = 0; first < batch; first += 4) {
    const PhiloxBlock block = counter.block(static_cast<uint32_t>(first / 4));
    for (int64_t draw = first; draw < std::min(first + 4, batch); ++draw)
      ++times[block.word[draw - first] >> (32 - kToyEntryBits)];
  }
  std::vector<float> shares(kToyEntries);
  std::ranges::transform(times, shares.begin(), [&](int32_t count) {
    return static_cast<float>(double(count) / double(batch));
  });
  return shares;
}

std::vector<float> equal_toy_shares() {
  return std::vector<float>(kToyEntries, 1.0f / float(kToyEntries));
}

template <class Real>
double toy_loss(const ToyProblem& problem, ToyLoss loss, std::span<const float> shares,
                std::span<const Real> weights) {
  if (loss == ToyLoss::kFrobenius) {
    const double mean = mean_root_term(problem, shares, weights);
    return mean * mean;
  }
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double root = root_term(problem, i, weights[i]);
    sum += double(shares[i]) * (root * root);
  }
  return sum;
}

template <class Real>
void toy_gradient(const ToyProblem& problem, ToyLoss loss, std::span<const float> shares,
                  std::span<const Real> weights, std::span<Real> gradient) {
  const bool quartic = loss == ToyLoss::kEntryQuartic;
  const Real mean = quartic ? Real(0) : static_cast<Real>(mean_root_term(problem, shares, weights));
  for (size_t i = 0; i < weights.size(); ++i) {
    const Real c = problem.scale[i], d = weights[i] - Real(problem.target[i]);
    const Real slope = quartic ? c * (d * d) * d : mean * std::sqrt(c) * d;
    gradient[i] = Real(shares[i]) * (Real(4) * slope);
  }
}

template double toy_loss(const ToyProblem&, ToyLoss, std::span<const float>,
                         std::span<const float>);
template double toy_loss(const ToyProblem&, ToyLoss, std::span<const float>,
                         std::span<const double>);
template void toy_gradient(const ToyProblem&, ToyLoss, std::span<const float>,
                           std::span<const float>, std::span<float>);
template void toy_gradient(const ToyProblem&, ToyLoss, std::span<const float>,
                           std::span<const double>, std::span<double>);

// w + (w u_m + u_a), u_a = -rate g, u_m = clip(-rate g_e / max(|w|, tau)), g_e = ln 2 w g.
float toy_update(ToyRule rule, float weight, float gradient, float rate) {
  const float exponent_gradient = (kLn2 * weight) * gradient;
  const float ratio = -(rate * exponent_gradient) / max_of(std::fabs(weight), kTau);
  const float clipped = clamp_to(ratio, -kMostRelativeStep, kMostRelativeStep);
  const float relative = rule == ToyRule::kAdditive ? 0.0f : clipped;
  const float shift = rule == ToyRule::kMultiplicative ? 0.0f : -(rate * gradient);
  return weight + std::fma(weight, relative, shift);
}

std::vector<int64_t> toy_steps(int64_t steps, int64_t points) {
  std::vector<int64_t> kept{0};
  const int64_t count = std::min(steps, points);
  for (int64_t k = 1; k <= count; ++k) kept.push_back(steps * k / count);
  return kept;
}

ToyFit fit_toy(const ToyFitOptions& options) {
  const ToyProblem problem = make_toy_problem(options.regime, options.seed);
  const std::vector<float> all = equal_toy_shares();
  const std::vector<int64_t> kept = toy_steps(options.steps, options.points);
  std::vector<float> weights = problem.start, shares = all, gradient(weights.size());
  const auto loss_of_all = [&] { return toy_loss<float>(problem, options.loss, all, weights); };
  ToyFit fit{.losses = {loss_of_all()}};
  for (int64_t step = 1; step <= options.steps; ++step) {
    if (options.sampling == ToySampling::kReplacement)
      shares = toy_shares(options.regime, options.seed, step, options.batch);
    toy_gradient<float>(problem, options.loss, shares, weights, gradient);
    const Transitions seen = step_all(options, gradient, weights);
    fit.sign_changes += seen.sign_changes;
    fit.zeros_left += seen.zeros_left;
    fit.zeros_entered += seen.zeros_entered;
    if (step == kept[fit.losses.size()]) fit.losses.push_back(loss_of_all());
  }
  fit.zeros_at_end = std::ranges::count(weights, 0.0f);
  return fit;
}

}  // namespace mpt
