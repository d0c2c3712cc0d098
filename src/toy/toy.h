// The verb `toy`: the matrix-fitting diagnostic for every regime, rule and rate, and the best
// rates.
//
//   DIR/runs.csv       regime,rule,rate,seed,step,loss
//   DIR/summary.json   options, best rates, the shared rate of M+Adam
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/io/file_system.h"
#include "core/io/output_directory.h"
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
  // Runs all fits of the options. Results do not depend on the number of threads. Throws Error if
  // there are no rates.
  static ToySweep run(const ToyOptions& options);

  [[nodiscard]] const std::vector<ToyCell>& cells() const { return cells_; }
  [[nodiscard]] const ToyOptions& options() const { return options_; }
  // Returns the cell with the smallest final loss; ties: the smallest rate. Null if all diverged.
  [[nodiscard]] const ToyCell* best(ToyRegime regime, ToyRule rule) const;
  [[nodiscard]] const ToyCell* at(ToyRegime regime, ToyRule rule, double rate) const;
  // Returns the rate of M+Adam with the smallest worst_ratio(); ties: the smallest rate. nullopt if
  // M+Adam was excluded or, at every rate, diverges in some regime.
  [[nodiscard]] std::optional<double> shared_rate() const;
  // Returns the largest ratio, over regimes, of M+Adam's loss at `rate` to its loss at the regime's
  // best rate; infinite if it diverges.
  [[nodiscard]] double worst_ratio(double rate) const;

 private:
  explicit ToySweep(const ToyOptions& options);

  ToyOptions options_;
  std::vector<ToyCell> cells_;
};

nlohmann::ordered_json toy_summary(const ToySweep& sweep);
// The results as a text table.
std::string toy_table(const ToySweep& sweep);

// Checks the output directory, runs, and writes both files. Throws Error if the directory is not
// empty; with Overwrite::kYes, if it holds anything but the result of an earlier `toy`.
ToySweep run_toy(FileSystem& fs, const ToyOptions& options);

}  // namespace mpt
