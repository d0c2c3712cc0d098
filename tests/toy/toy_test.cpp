// The matrix-fitting diagnostic: capabilities and limits of each rule, gradients, files, bad
// options.
#include "toy/toy.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>

#include <gtest/gtest.h>

#include "core/bf16.h"
#include "core/random.h"
#include "support/expect_error.h"
#include "support/run_program.h"
#include "support/temp_directory.h"

namespace mpt {
namespace {

namespace fs = std::filesystem;

constexpr std::array kRegimes{ToyRegime::kSignFlip, ToyRegime::kZeroRevival, ToyRegime::kSmall,
                              ToyRegime::kLarge, ToyRegime::kMixed};

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// --- problems ------------------------------------------------------------------------------------

TEST(ToyProblem, IsThePapers) {
  for (uint64_t seed : {1, 2}) {
    const ToyProblem flip = make_toy_problem(ToyRegime::kSignFlip, seed);
    const ToyProblem zero = make_toy_problem(ToyRegime::kZeroRevival, seed);
    const ToyProblem small = make_toy_problem(ToyRegime::kSmall, seed);
    const ToyProblem large = make_toy_problem(ToyRegime::kLarge, seed);
    ASSERT_EQ(flip.target.size(), 4096u);
    double positive = 0, small_square = 0;
    for (size_t i = 0; i < 4096; ++i) {
      EXPECT_EQ(std::fabs(flip.target[i]), 1);
      EXPECT_EQ(flip.start[i], -flip.target[i]);
      EXPECT_EQ(std::fabs(zero.target[i]), 1);
      EXPECT_EQ(zero.start[i], 0);
      EXPECT_EQ(small.start[i], 0);
      EXPECT_EQ(small.scale[i], 1e8f);
      EXPECT_GE(large.target[i], 1);
      EXPECT_EQ(large.start[i], 100);
      EXPECT_EQ(large.scale[i], 1e-7f);
      positive += flip.target[i] > 0;
      small_square += std::pow(small.target[i] / 1e-4, 2);
    }
    EXPECT_NEAR(positive, 2048, 4 * 32);  // four standard deviations of 4096 fair draws
    EXPECT_NEAR(small_square / 4096, 1, 4 * std::sqrt(2.0 / 4096));
  }
}

TEST(ToyProblem, MixedIsHalfSmallHalfLarge) {
  const ToyProblem mixed = make_toy_problem(ToyRegime::kMixed, 1);
  for (size_t i = 0; i < 4096; ++i) {
    EXPECT_EQ(mixed.scale[i], i < 2048 ? 1e8f : 1e-7f);
    EXPECT_EQ(mixed.start[i], i < 2048 ? 0.0f : 100.0f);
    EXPECT_EQ(std::fabs(mixed.target[i]) < 1, i < 2048);
  }
}

TEST(ToyProblem, DrawsAreTheWordsOfTheirStream) {
  constexpr int64_t kBatch = 4097;  // no multiple of a block
  const RandomCounter counter{
      .seed = 7, .tensor = 3, .row = 0, .step = 5, .stream = kSyntheticStream};
  std::vector<float> expected(4096, 0);
  for (uint32_t draw = 0; draw < kBatch; ++draw) ++expected[counter.word(draw) >> 20];
  for (float& share : expected) share = static_cast<float>(double(share) / kBatch);
  EXPECT_EQ(toy_shares(ToyRegime::kLarge, 7, 5, kBatch), expected);
  EXPECT_NE(toy_shares(ToyRegime::kLarge, 7, 6, kBatch), expected);
}

// --- formulas ------------------------------------------------------------------------------------

// Central differences in FP64 have an error of about h^2 and eps / h, relative: 1e-6 is far above
// both.
TEST(ToyLoss, GradientsAreDifferencesOfTheLoss) {
  for (ToyRegime regime : kRegimes) {
    const ToyProblem problem = make_toy_problem(regime, 3);
    const std::vector<float> shares = toy_shares(regime, 3, 1, 4096);
    for (ToyLoss loss : {ToyLoss::kEntryQuartic, ToyLoss::kFrobenius}) {
      SCOPED_TRACE(fmt::format("{} {}", name_of(regime), name_of(loss)));
      std::vector<double> weights(problem.start.begin(), problem.start.end()),
          gradient(weights.size());
      toy_gradient<double>(problem, loss, shares, weights, gradient);
      for (size_t i = 0; i < weights.size(); i += 127) {
        // only this entry in the sum, since its share of the loss would otherwise drown in rounding
        std::vector<float> only(shares.size(), 0.0f);
        only[i] = shares[i];
        std::vector<double> alone(weights.size());
        toy_gradient<double>(problem, loss, only, weights, alone);
        if (loss == ToyLoss::kEntryQuartic) {
          EXPECT_EQ(alone[i], gradient[i]);
        }
        const double middle = weights[i], h = 1e-4 * std::fabs(middle - double(problem.target[i]));
        const auto at = [&](double weight) {
          weights[i] = weight;
          return toy_loss<double>(problem, loss, only, weights);
        };
        const double slope = (at(middle + h) - at(middle - h)) / (2 * h);
        weights[i] = middle;
        EXPECT_NEAR(alone[i], slope, 1e-6 * std::fabs(slope)) << i;
      }
    }
  }
}

// The Frobenius reading couples all entries: a directional difference sees the shared factor.
TEST(ToyLoss, FrobeniusGradientAlongADirection) {
  const ToyProblem problem = make_toy_problem(ToyRegime::kSignFlip, 4);
  const std::vector<float> shares = toy_shares(ToyRegime::kSignFlip, 4, 1, 512);
  std::vector<double> weights(problem.start.begin(), problem.start.end()), gradient(weights.size());
  toy_gradient<double>(problem, ToyLoss::kFrobenius, shares, weights, gradient);
  const auto along = [&](double h) {
    std::vector<double> moved = weights;
    for (size_t i = 0; i < moved.size(); ++i) moved[i] += h * std::cos(double(i));
    return toy_loss<double>(problem, ToyLoss::kFrobenius, shares, moved);
  };
  double expected = 0;
  for (size_t i = 0; i < gradient.size(); ++i) expected += gradient[i] * std::cos(double(i));
  EXPECT_NEAR((along(1e-5) - along(-1e-5)) / 2e-5, expected, 1e-7 * std::fabs(expected) + 1e-9);
}

TEST(ToyLoss, StartsAtTheDistanceToTheTargets) {
  const ToyProblem flip = make_toy_problem(ToyRegime::kSignFlip, 1);
  const std::vector<float> all = equal_toy_shares();
  for (ToyLoss loss : {ToyLoss::kEntryQuartic, ToyLoss::kFrobenius})  // |d| = 2 everywhere
    EXPECT_DOUBLE_EQ(toy_loss<float>(flip, loss, all, flip.start), 16);
  // E c (1e-4 z)^4 = 1e-8 E z^4 = 3e-8, and the square of E z^2 is 1e-8; five standard deviations
  // of a mean
  const ToyProblem small = make_toy_problem(ToyRegime::kSmall, 1);
  EXPECT_NEAR(toy_loss<float>(small, ToyLoss::kEntryQuartic, all, small.start), 3e-8,
              1e-8 * 5 * std::sqrt(96.0 / 4096));
  EXPECT_NEAR(toy_loss<float>(small, ToyLoss::kFrobenius, all, small.start), 1e-8,
              1e-8 * 5 * 2 * std::sqrt(2.0 / 4096));
}

TEST(ToyUpdate, IsTheFormula) {
  constexpr double kLn2 = 0.69314718055994531;
  for (const float w : {1.5f, -2.0f, 0.0625f, -700.0f})
    for (const float g : {0.01f, -0.25f}) {
      const float rate = 0.125f;
      const double relative = -rate * kLn2 * w * g / std::fabs(w), shift = -double(rate) * g;
      const double ulp = std::ldexp(std::fabs(w) + std::fabs(shift), -23);
      EXPECT_NEAR(toy_update(ToyRule::kAdditive, w, g, rate), w + shift, ulp);
      EXPECT_NEAR(toy_update(ToyRule::kMultiplicative, w, g, rate), w + w * relative, 2 * ulp);
      EXPECT_NEAR(toy_update(ToyRule::kMPlusAdam, w, g, rate), w + w * relative + shift, 2 * ulp);
    }
  // clipped at 0.75 of the weight, and a weight below tau counts as tau
  EXPECT_EQ(toy_update(ToyRule::kMultiplicative, 2.0f, 1e6f, 1.0f), 0.5f);
  EXPECT_EQ(toy_update(ToyRule::kMultiplicative, -2.0f, 1e6f, 1.0f), -3.5f);
  const float tiny = 1e-9f;
  EXPECT_NEAR(toy_update(ToyRule::kMultiplicative, tiny, 1.0f, 0.5f), tiny * (1 - 0.5 * kLn2 * 0.1),
              1e-15);
  EXPECT_EQ(toy_update(ToyRule::kMultiplicative, 0.0f, 1.0f, 1.0f), 0.0f);
  EXPECT_EQ(toy_update(ToyRule::kMPlusAdam, 0.0f, 1.0f, 0.5f), -0.5f);
}

TEST(ToyFit, WeightsAreRoundedToTheirFormat) {
  // One step at one rate: the loss of weights rounded to BF16 differs from that of FP32 ones.
  ToyFitOptions options{
      .regime = ToyRegime::kSignFlip, .steps = 1, .points = 1, .rate = 8, .seed = 1};
  const ToyProblem problem = make_toy_problem(options.regime, options.seed);
  const std::vector<float> shares = toy_shares(options.regime, options.seed, 1, options.batch);
  for (Format format : {Format::kBF16, Format::kF32}) {
    options.weights = format;
    std::vector<float> weights = problem.start, gradient(weights.size());
    toy_gradient<float>(problem, options.loss, shares, weights, gradient);
    for (size_t i = 0; i < weights.size(); ++i) {
      const float updated = toy_update(options.rule, weights[i], gradient[i], 8);
      weights[i] = format == Format::kBF16 ? rounded_to<bf16>(updated) : updated;
    }
    const double expected = toy_loss<float>(problem, options.loss, equal_toy_shares(), weights);
    EXPECT_EQ(fit_toy(options).losses.back(), expected) << name_of(format);
  }
}

TEST(ToyFit, KeepsEvenlySpacedLosses) {
  EXPECT_EQ(toy_steps(10, 5), (std::vector<int64_t>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(toy_steps(7, 3), (std::vector<int64_t>{0, 2, 4, 7}));
  EXPECT_EQ(toy_steps(2, 50), (std::vector<int64_t>{0, 1, 2}));
  const ToyFit fit = fit_toy({.steps = 7, .points = 3, .rate = 1});
  EXPECT_EQ(fit.losses.size(), 4u);
  EXPECT_EQ(fit.losses.back(), fit_toy({.steps = 7, .points = 7, .rate = 1}).losses.back());
}

TEST(ToyFit, ADivergedRateIsRecorded) {
  const ToyFit fit =
      fit_toy({.rule = ToyRule::kAdditive, .steps = 50, .points = 5, .rate = 0x1p24});
  EXPECT_TRUE(std::isfinite(fit.losses.front()));
  EXPECT_FALSE(std::isfinite(fit.losses.back()));
}

// --- acceptance ----------------------------------------------------------------------------------

// The rates around the best ones of a sweep over 2^-12 .. 2^24, for a batch of 4096 and 1000 steps.
// For small weights, 2^6 is at the edge: it diverges if an entry far out in the tail of the targets
// is drawn three times in an early step, as for seed 1 but not for seed 2.
const ToySweep& acceptance_sweep() {
  static const ToySweep sweep = ToySweep::run({.log2_rate_from = 5, .log2_rate_to = 10, .seed = 2});
  return sweep;
}

TEST(ToyAcceptance, MultiplicativeNeverChangesASignAndNeverLeavesZero) {
  int64_t cells = 0;
  for (const ToyCell& cell : acceptance_sweep().cells()) {
    if (cell.rule != ToyRule::kMultiplicative) continue;
    SCOPED_TRACE(fmt::format("{} {}", name_of(cell.regime), cell.rate));
    EXPECT_EQ(cell.sum(&ToyFit::sign_changes), 0);
    EXPECT_EQ(cell.sum(&ToyFit::zeros_left), 0);
    ++cells;
  }
  EXPECT_EQ(cells, 5 * 6);
  const ToyCell* revival =
      acceptance_sweep().best(ToyRegime::kZeroRevival, ToyRule::kMultiplicative);
  EXPECT_EQ(revival->final_loss(), 1);
  EXPECT_EQ(revival->sum(&ToyFit::zeros_at_end), 4096);
  // and it stays there if the sign is wrong: |d| >= 1
  EXPECT_GE(acceptance_sweep().best(ToyRegime::kSignFlip, ToyRule::kMultiplicative)->final_loss(),
            1);
}

TEST(ToyAcceptance, OneSharedRateOfMPlusAdamMeetsTunedAdditiveStepsAndBeatsThemWhereTheyStall) {
  const ToySweep& sweep = acceptance_sweep();
  const std::optional<double> shared = sweep.shared_rate();
  ASSERT_TRUE(shared);
  const auto ratio = [&](ToyRegime regime) {  // tuned additive / M+Adam at the shared rate
    return sweep.best(regime, ToyRule::kAdditive)->final_loss() /
           sweep.at(regime, ToyRule::kMPlusAdam, *shared)->final_loss();
  };
  EXPECT_GE(ratio(ToyRegime::kLarge), 100);
  EXPECT_GE(ratio(ToyRegime::kMixed), 100);
  EXPECT_GE(ratio(ToyRegime::kSignFlip), 0.1);
  EXPECT_GE(ratio(ToyRegime::kZeroRevival), 0.1);
  EXPECT_GE(ratio(ToyRegime::kSmall), 0.1);
  EXPECT_GE(
      sweep.at(ToyRegime::kSignFlip, ToyRule::kMPlusAdam, *shared)->sum(&ToyFit::sign_changes),
      4096);
  EXPECT_GE(
      sweep.at(ToyRegime::kZeroRevival, ToyRule::kMPlusAdam, *shared)->sum(&ToyFit::zeros_left),
      4096);
}

// Additive steps on large weights stall because of the storage: in FP32 they continue.
TEST(ToyAcceptance, AdditiveStepsOnLargeWeightsStallForBF16) {
  ToyFitOptions options{.regime = ToyRegime::kLarge, .rule = ToyRule::kAdditive, .rate = 0x1p8};
  const double rounded = fit_toy(options).losses.back();
  options.weights = Format::kF32;
  EXPECT_LT(fit_toy(options).losses.back(), rounded / 2);
}

TEST(ToyAcceptance, TheFrobeniusReadingFitsToo) {
  const ToySweep sweep = ToySweep::run({.rules = {ToyRule::kMultiplicative, ToyRule::kMPlusAdam},
                                        .loss = ToyLoss::kFrobenius,
                                        .steps = 200,
                                        .log2_rate_from = 4,
                                        .log2_rate_to = 8,
                                        .rates_per_doubling = 1});
  for (const ToyCell& cell : sweep.cells())
    if (cell.rule == ToyRule::kMultiplicative) {
      EXPECT_EQ(cell.sum(&ToyFit::sign_changes) + cell.sum(&ToyFit::zeros_left), 0);
    }
  const ToyCell* revival = sweep.best(ToyRegime::kZeroRevival, ToyRule::kMPlusAdam);
  ASSERT_NE(revival, nullptr);
  EXPECT_LT(revival->final_loss(), revival->initial_loss() / 10);
}

// --- sweep and its files -------------------------------------------------------------------------

ToyOptions quick(const std::string& output) {
  return {.output = output,
          .rules = {ToyRule::kMPlusAdam, ToyRule::kAdditive},
          .batch = 100,
          .steps = 6,
          .points = 2,
          .log2_rate_from = 4,
          .log2_rate_to = 6,
          .rates_per_doubling = 1,
          .seed = 11,
          .seeds = 2};
}

TEST(ToySweep, FilesAreTheSameWhateverTheThreads) {
  const test::TempDirectory directory;
  for (const int threads : {1, 3}) {
    ToyOptions options = quick(directory / fmt::format("t{}", threads));
    options.threads = threads;
    run_toy(posix_file_system(), options);
  }
  for (const char* file : {"/runs.csv", "/summary.json"}) {
    const std::string one = content_of(directory / ("t1" + std::string(file)));
    EXPECT_FALSE(one.empty());
    EXPECT_EQ(one, content_of(directory / ("t3" + std::string(file))));
  }
}

TEST(ToySweep, WritesEveryRunAndWhatIsBest) {
  const test::TempDirectory directory;
  const ToySweep sweep = run_toy(posix_file_system(), quick(directory / "toy"));
  const std::string csv = content_of(directory / "toy/runs.csv");
  EXPECT_TRUE(csv.starts_with("regime,rule,rate,seed,step,loss\nsign_flip,additive,16,11,0,16\n"))
      << csv;
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + 5 * 2 * 3 * 2 * 3);
  const auto summary = nlohmann::json::parse(content_of(directory / "toy/summary.json"));
  EXPECT_EQ(summary["options"]["seeds"], 2);
  EXPECT_EQ(summary["options"]["rules"], nlohmann::json({"additive", "m_plus_adam"}));
  EXPECT_EQ(summary["options"]["format"], "bf16");
  const ToyCell* best = sweep.best(ToyRegime::kLarge, ToyRule::kAdditive);
  EXPECT_EQ(summary["regimes"]["large"]["additive"]["loss"], best->final_loss());
  EXPECT_EQ(best->final_loss(), (best->fits[0].losses[2] + best->fits[1].losses[2]) / 2);
  EXPECT_EQ(summary["shared_rate"], *sweep.shared_rate());
  double least = sweep.worst_ratio(16);
  for (double rate : {32.0, 64.0}) least = std::min(least, sweep.worst_ratio(rate));
  EXPECT_EQ(sweep.worst_ratio(*sweep.shared_rate()), least);
}

TEST(ToySweep, WithoutAnUndivergedRateNothingIsBest) {
  const ToySweep sweep = ToySweep::run({.regimes = {ToyRegime::kSignFlip},
                                        .rules = {ToyRule::kMPlusAdam},
                                        .steps = 50,
                                        .log2_rate_from = 24,
                                        .log2_rate_to = 24});
  EXPECT_EQ(sweep.best(ToyRegime::kSignFlip, ToyRule::kMPlusAdam), nullptr);
  EXPECT_EQ(sweep.shared_rate(), std::nullopt);
  EXPECT_TRUE(toy_summary(sweep)["regimes"]["sign_flip"]["m_plus_adam"].is_null());
  EXPECT_NE(toy_table(sweep).find("diverged"), std::string::npos);
}

TEST(ToySweep, OnlyEarlierResultsAreReplaced) {
  const test::TempDirectory directory;
  ToyOptions options = quick(directory / "toy");
  run_toy(posix_file_system(), options);
  const std::string first = content_of(directory / "toy/runs.csv");
  options.seed = 12;
  EXPECT_ERROR(run_toy(posix_file_system(), options), "toy: is not empty", "--overwrite");
  EXPECT_EQ(content_of(directory / "toy/runs.csv"), first);
  options.overwrite = Overwrite::kYes;
  run_toy(posix_file_system(), options);
  EXPECT_NE(content_of(directory / "toy/runs.csv"), first);
  std::ofstream(directory / "toy/mine.txt") << "x";
  EXPECT_ERROR(run_toy(posix_file_system(), options),
               "toy: contains mine.txt, which is not part of a toy result");
  options.output = directory / "toy/mine.txt";
  EXPECT_ERROR(run_toy(posix_file_system(), options), "mine.txt: exists and is not a directory");
}

TEST(ToyVerb, BadOptionsAreRefusedByName) {
  const test::TempDirectory directory;
  const auto refused = [&](std::vector<std::string> more, int exit_code, const std::string& says) {
    std::vector<std::string> arguments{"toy", "--output", directory / "new"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const test::ProgramResult result = test::run_program(arguments);
    EXPECT_EQ(result.exit_code, exit_code) << says;
    EXPECT_NE(result.err.find(says), std::string::npos) << result.err;
    EXPECT_FALSE(fs::exists(directory / "new")) << says;
  };
  refused({"--regimes", "tiny"}, 2,
          "--regimes: 'tiny' is not one of: sign_flip, zero_revival, small, large, mixed");
  refused({"--rules", "adam"}, 2,
          "--rules: 'adam' is not one of: additive, multiplicative, m_plus_adam");
  refused({"--loss", "mse"}, 2, "--loss: 'mse' is not one of: entry_quartic, frobenius");
  refused({"--format", "fp8"}, 2, "--format: 'fp8' is not one of: fp32, bf16");
  refused({"--steps", "0"}, 2, "--steps: '0' is not a whole number from 1 to");
  refused({"--batch", "x"}, 2, "--batch: 'x' is not a whole number");
  refused({"--log2-rate-to", "101"}, 2,
          "--log2-rate-to: '101' is not a whole number from -100 to 100");
  refused({"--log2-rate-from", "5", "--log2-rate-to", "4"}, 1,
          "--log2-rate-from 5 is above --log2-rate-to 4");
  refused({"--sede", "1"}, 2, "--sede");
}

}  // namespace
}  // namespace mpt
