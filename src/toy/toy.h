// The verb `toy`: the matrix-fitting diagnostic for every regime, rule and rate, and what is best where.
//
//   DIR/runs.csv       regime,rule,rate,seed,step,loss
//   DIR/summary.json   options, best rates, the rate of M+Adam that all regimes share
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/io/atomic_output.h"
#include "core/io/file_system.h"
#include "toy/toy_fit.h"

namespace mpt {

struct ToyOptions {
  std::string output{};  // directory
  Overwrite overwrite = Overwrite::kNo;
  std::vector<ToyRegime> regimes{};  // none: all
  std::vector<ToyRule> rules{};      // none: all
  ToyLoss loss = ToyLoss::kEntryQuartic;
  Format weights = Format::kBF16;
  ToySampling sampling = ToySampling::kReplacement;
  int64_t batch = kToyEntries;
  int64_t steps = 1000;
  int64_t points = 50;
  int64_t log2_rate_from = -12, log2_rate_to = 24;
  int64_t rates_per_doubling = 1;
  uint64_t seed = 1;
  int64_t seeds = 1;  // seed, seed + 1, ...
  int threads = 0;    // 0 = all
};

// Rates 2^from .. 2^to, evenly spaced in their logarithm.
std::vector<double> toy_rates(const ToyOptions& options);

// All seeds of a regime, a rule and a rate.
struct ToyCell {
  ToyRegime regime{};
  ToyRule rule{};
  double rate = 0;
  std::vector<ToyFit> fits{};  // by seed

  [[nodiscard]] double initial_loss() const;  // means over seeds
  [[nodiscard]] double final_loss() const;    // not finite if any seed diverged
  [[nodiscard]] int64_t sum(int64_t ToyFit::*count) const;
};

class ToySweep {
 public:
  // Every run of the options; the same whatever the number of threads. Throws Error if there are no rates.
  static ToySweep run(const ToyOptions& options);

  [[nodiscard]] const std::vector<ToyCell>& cells() const { return cells_; }
  [[nodiscard]] const ToyOptions& options() const { return options_; }
  // Smallest final loss; of equal ones the one of the smallest rate. Null if all diverged.
  [[nodiscard]] const ToyCell* best(ToyRegime regime, ToyRule rule) const;
  [[nodiscard]] const ToyCell* at(ToyRegime regime, ToyRule rule, double rate) const;
  // The rate of M+Adam whose worst_ratio() is smallest; of equal ones the smallest. None if M+Adam was left
  // out or diverges somewhere at every rate.
  [[nodiscard]] std::optional<double> shared_rate() const;
  // Largest, over regimes, of M+Adam's loss at this rate / at the best one for the regime; infinite where it
  // diverges.
  [[nodiscard]] double worst_ratio(double rate) const;

 private:
  explicit ToySweep(const ToyOptions& options);

  ToyOptions options_;
  std::vector<ToyCell> cells_;
};

nlohmann::ordered_json toy_summary(const ToySweep& sweep);
// A table for people.
std::string toy_table(const ToySweep& sweep);

// Checks the output, runs, writes both files. A directory that holds anything is refused; with
// Overwrite::kYes, one that holds anything but the result of an earlier `toy`.
ToySweep run_toy(FileSystem& fs, const ToyOptions& options);

}  // namespace mpt
