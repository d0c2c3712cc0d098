#include "toy/toy.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <omp.h>

#include "core/check.h"
#include "core/json/json_parse.h"
#include "core/progress.h"

namespace mpt {
namespace {

using nlohmann::ordered_json;

constexpr const char* kRuns = "runs.csv";
constexpr const char* kSummary = "summary.json";

template <NamedEnum E>
std::vector<E> all_or(std::vector<E> chosen) {
  if (chosen.empty())
    for (size_t i = 0; i < EnumNames<E>::kNames.size(); ++i) chosen.push_back(static_cast<E>(i));
  std::ranges::sort(chosen);
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

ToyFitOptions fit_options(const ToyOptions& options, const ToyCell& cell, uint64_t seed) {
  return {.regime = cell.regime,
          .rule = cell.rule,
          .loss = options.loss,
          .weights = options.weights,
          .sampling = options.sampling,
          .batch = options.batch,
          .steps = options.steps,
          .points = options.points,
          .rate = cell.rate,
          .seed = seed};
}

double ratio(double loss, double best) {
  if (!std::isfinite(loss)) return std::numeric_limits<double>::infinity();
  return loss == best ? 1 : loss / best;
}

// Mean loss over seeds at one point of the curve.
double mean_loss(const ToyCell& cell, size_t at) {
  double sum = 0;
  for (const ToyFit& fit : cell.fits) sum += fit.losses[at];
  return sum / double(cell.fits.size());
}

// --- files ---------------------------------------------------------------------------------------

// null if not finite, since JSON has no such numbers.
ordered_json number(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
}

template <NamedEnum E>
ordered_json names(const std::vector<E>& values) {
  ordered_json list = ordered_json::array();
  for (E value : values) list.push_back(name_of(value));
  return list;
}

ordered_json options_json(const ToyOptions& options) {
  return {{"regimes", names(options.regimes)},
          {"rules", names(options.rules)},
          {"loss", name_of(options.loss)},
          {"format", name_of(options.weights)},
          {"sampling", name_of(options.sampling)},
          {"batch", options.batch},
          {"steps", options.steps},
          {"points", options.points},
          {"log2_rate_from", options.log2_rate_from},
          {"log2_rate_to", options.log2_rate_to},
          {"rates_per_doubling", options.rates_per_doubling},
          {"seed", options.seed},
          {"seeds", options.seeds}};
}

ordered_json cell_json(const ToyCell* cell) {
  if (cell == nullptr) return nullptr;
  return {{"rate", cell->rate},
          {"loss", number(cell->final_loss())},
          {"sign_changes", cell->sum(&ToyFit::sign_changes)},
          {"zeros_left", cell->sum(&ToyFit::zeros_left)},
          {"zeros_entered", cell->sum(&ToyFit::zeros_entered)},
          {"zeros_at_end", cell->sum(&ToyFit::zeros_at_end)}};
}

std::string runs_csv(const ToySweep& sweep) {
  const ToyOptions& options = sweep.options();
  const std::vector<int64_t> steps = toy_steps(options.steps, options.points);
  std::string text = "regime,rule,rate,seed,step,loss\n";
  for (const ToyCell& cell : sweep.cells())
    for (size_t s = 0; s < cell.fits.size(); ++s)
      for (size_t k = 0; k < steps.size(); ++k)
        text += fmt::format("{},{},{},{},{},{:.6g}\n", name_of(cell.regime), name_of(cell.rule),
                            cell.rate, options.seed + s, steps[k], cell.fits[s].losses[k]);
  return text;
}

OutputDirectory output_of(const ToyOptions& options) {
  return {.path = options.output,
          .what = "a toy result",
          .files = {kRuns, kSummary},
          .overwrite = options.overwrite};
}

// "2^5.5"
std::string rate_text(double rate) { return fmt::format("2^{:.3g}", std::log2(rate)); }

std::string cell_text(const ToyCell* cell) {
  if (cell == nullptr) return "diverged";
  return fmt::format("{:.3g} at {}", cell->final_loss(), rate_text(cell->rate));
}

}  // namespace

std::vector<double> toy_rates(const ToyOptions& options) {
  std::vector<double> rates;
  const int64_t n = options.rates_per_doubling;
  for (int64_t k = options.log2_rate_from * n; k <= options.log2_rate_to * n; ++k)
    rates.push_back(std::exp2(double(k) / double(n)));
  return rates;
}

double ToyCell::initial_loss() const { return mean_loss(*this, 0); }

double ToyCell::final_loss() const { return mean_loss(*this, fits.front().losses.size() - 1); }

int64_t ToyCell::sum(int64_t ToyFit::*count) const {
  int64_t total = 0;
  for (const ToyFit& fit : fits) total += fit.*count;
  return total;
}

ToySweep::ToySweep(const ToyOptions& options) : options_(options) {
  options_.regimes = all_or(options.regimes);
  options_.rules = all_or(options.rules);
  const std::vector<double> rates = toy_rates(options_);
  if (rates.empty())
    throw error("--log2-rate-from {} is above --log2-rate-to {}: no rates to try",
                options_.log2_rate_from, options_.log2_rate_to);
  for (ToyRegime regime : options_.regimes)
    for (ToyRule rule : options_.rules)
      for (double rate : rates)
        cells_.push_back({.regime = regime,
                          .rule = rule,
                          .rate = rate,
                          .fits = std::vector<ToyFit>(size_t(options_.seeds))});
}

ToySweep ToySweep::run(const ToyOptions& options) {
  ToySweep sweep(options);
  const int64_t seeds = options.seeds, runs = int64_t(sweep.cells_.size()) * seeds;
  Progress progress({.label = "fit", .total = runs});
  std::atomic<int64_t> done = 0;
  const int threads = options.threads == 0 ? omp_get_max_threads() : options.threads;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (int64_t i = 0; i < runs; ++i) {
    ToyCell& cell = sweep.cells_[size_t(i / seeds)];
    const int64_t s = i % seeds;
    cell.fits[size_t(s)] = fit_toy(fit_options(sweep.options_, cell, options.seed + uint64_t(s)));
    progress.update(++done);
  }
  return sweep;
}

const ToyCell* ToySweep::best(ToyRegime regime, ToyRule rule) const {
  const ToyCell* best = nullptr;
  for (const ToyCell& cell : cells_) {
    if (cell.regime != regime || cell.rule != rule || !std::isfinite(cell.final_loss())) continue;
    if (best == nullptr || cell.final_loss() < best->final_loss()) best = &cell;
  }
  return best;
}

const ToyCell* ToySweep::at(ToyRegime regime, ToyRule rule, double rate) const {
  for (const ToyCell& cell : cells_)
    if (cell.regime == regime && cell.rule == rule && cell.rate == rate) return &cell;
  return nullptr;
}

double ToySweep::worst_ratio(double rate) const {
  double worst = 1;
  for (ToyRegime regime : options_.regimes) {
    const ToyCell* own = best(regime, ToyRule::kMPlusAdam);
    const ToyCell* shared = at(regime, ToyRule::kMPlusAdam, rate);
    if (own == nullptr || shared == nullptr) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, ratio(shared->final_loss(), own->final_loss()));
  }
  return worst;
}

std::optional<double> ToySweep::shared_rate() const {
  std::optional<double> best;
  double least = std::numeric_limits<double>::infinity();
  for (double rate : toy_rates(options_)) {
    const double worst = worst_ratio(rate);
    if (worst < least) best = rate;
    least = std::min(least, worst);
  }
  return best;
}

ordered_json toy_summary(const ToySweep& sweep) {
  const std::optional<double> shared = sweep.shared_rate();
  ordered_json regimes = ordered_json::object();
  for (ToyRegime regime : sweep.options().regimes) {
    ordered_json& entry = regimes[std::string(name_of(regime))];
    entry["initial_loss"] =
        sweep.at(regime, sweep.options().rules.front(), toy_rates(sweep.options()).front())
            ->initial_loss();
    for (ToyRule rule : sweep.options().rules)
      entry[std::string(name_of(rule))] = cell_json(sweep.best(regime, rule));
    if (shared)
      entry["m_plus_adam_shared"] = cell_json(sweep.at(regime, ToyRule::kMPlusAdam, *shared));
  }
  ordered_json summary{{"options", options_json(sweep.options())},
                       {"shared_rate", shared ? ordered_json(*shared) : ordered_json(nullptr)}};
  if (shared) summary["shared_worst_ratio"] = sweep.worst_ratio(*shared);
  summary["regimes"] = regimes;
  return summary;
}

std::string toy_table(const ToySweep& sweep) {
  const std::vector<ToyRule>& rules = sweep.options().rules;
  const std::optional<double> shared = sweep.shared_rate();
  std::string text = fmt::format("{:<14}{:>12}", "final loss", "initial");
  for (ToyRule rule : rules) text += fmt::format("{:>22}", name_of(rule));
  if (shared) text += fmt::format("{:>22}", fmt::format("m_plus_adam, {}", rate_text(*shared)));
  text += '\n';
  for (ToyRegime regime : sweep.options().regimes) {
    const ToyCell* any = sweep.at(regime, rules.front(), toy_rates(sweep.options()).front());
    text += fmt::format("{:<14}{:>12.3g}", name_of(regime), any->initial_loss());
    for (ToyRule rule : rules) text += fmt::format("{:>22}", cell_text(sweep.best(regime, rule)));
    if (shared)
      text +=
          fmt::format("{:>22.3g}", sweep.at(regime, ToyRule::kMPlusAdam, *shared)->final_loss());
    text += '\n';
  }
  return text;
}

ToySweep run_toy(FileSystem& fs, const ToyOptions& options) {
  check_output(fs, output_of(options));
  ToySweep sweep = ToySweep::run(options);
  write_directory(fs, output_of(options), [&](const std::string& directory) {
    write_file_atomically(fs, directory + "/" + kRuns, bytes_of(runs_csv(sweep)));
    write_file_atomically(fs, directory + "/" + kSummary,
                          bytes_of(json_text(toy_summary(sweep), 2) + "\n"));
  });
  return sweep;
}

}  // namespace mpt
