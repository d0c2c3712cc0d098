// The matrix-fitting diagnostic: fits numbers to targets by plain gradient steps, each rounded to
// the storage format at once, to see which updates survive rounding (docs/paper.md "Matrix
// fitting"; bit-exact definition: docs/numerics.md "Matrix fitting").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/enum_names.h"
#include "precision/format.h"

namespace mpt {

// Numbers of a problem: the paper's n = 4096, read as the entries of a 64 x 64 matrix.
inline constexpr int kToyEntryBits = 12;
inline constexpr int64_t kToyEntries = int64_t{1} << kToyEntryBits;

// The order matters: an enumerator's value is part of random draws.
enum class ToyRegime : uint8_t { kSignFlip, kZeroRevival, kSmall, kLarge, kMixed };
template <>
struct EnumNames<ToyRegime> {
  static constexpr std::array<std::string_view, 5> kNames{"sign_flip", "zero_revival", "small",
                                                          "large", "mixed"};
};

// The branches of M+Adam, separately and together, without moments.
enum class ToyRule : uint8_t { kAdditive, kMultiplicative, kMPlusAdam };
template <>
struct EnumNames<ToyRule> {
  static constexpr std::array<std::string_view, 3> kNames{"additive", "multiplicative",
                                                          "m_plus_adam"};
};

// Two readings of c ||W - W*||_F^4 over sampled entries, d = w - w*. entry_quartic: mean of c d^4;
// frobenius: square of the mean of sqrt(c) d^2.
enum class ToyLoss : uint8_t { kEntryQuartic, kFrobenius };
template <>
struct EnumNames<ToyLoss> {
  static constexpr std::array<std::string_view, 2> kNames{"entry_quartic", "frobenius"};
};

// Entries in the gradient of a step: drawn uniformly with replacement, or each entry once.
enum class ToySampling : uint8_t { kReplacement, kFull };
template <>
struct EnumNames<ToySampling> {
  static constexpr std::array<std::string_view, 2> kNames{"replacement", "full"};
};

struct ToyProblem {
  std::vector<float> target, start, scale;  // w*, w_0 and c of each entry
};
ToyProblem make_toy_problem(ToyRegime regime, uint64_t seed);

// Fraction of each entry in a mean: times drawn / draws. Draws of step t >= 1 are words of the
// stream "toy".
std::vector<float> toy_shares(ToyRegime regime, uint64_t seed, int64_t step, int64_t batch);
std::vector<float> equal_toy_shares();

// Loss, summed in FP64, and its gradient with respect to the weights, for Real = float or double.
template <class Real>
double toy_loss(const ToyProblem& problem, ToyLoss loss, std::span<const float> shares,
                std::span<const Real> weights);
template <class Real>
void toy_gradient(const ToyProblem& problem, ToyLoss loss, std::span<const float> shares,
                  std::span<const Real> weights, std::span<Real> gradient);

// One update of one weight in FP32, before rounding; M+Adam uses the same rate in both branches.
float toy_update(ToyRule rule, float weight, float gradient, float rate);

struct ToyFitOptions {
  ToyRegime regime = ToyRegime::kSignFlip;
  ToyRule rule = ToyRule::kMPlusAdam;
  ToyLoss loss = ToyLoss::kEntryQuartic;
  Format weights = Format::kBF16;
  ToySampling sampling = ToySampling::kReplacement;
  int64_t batch = kToyEntries;  // draws per step
  int64_t steps = 1000;
  int64_t points = 50;  // losses kept, evenly spaced up to the last step, besides the first
  double rate = 0;
  uint64_t seed = 1;
};

struct ToyFit {
  std::vector<double> losses;  // over all entries, at toy_steps(); not finite if diverged
  int64_t sign_changes = 0;    // over all steps and entries
  int64_t zeros_left = 0;
  int64_t zeros_entered = 0;
  int64_t zeros_at_end = 0;
};

// Returns the steps whose losses are kept: 0, then `points` of 1 .. steps.
std::vector<int64_t> toy_steps(int64_t steps, int64_t points);

// A pure function of its options.
ToyFit fit_toy(const ToyFitOptions& options);

}  // namespace mpt
