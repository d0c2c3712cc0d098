#include "train/incidents/spike_guard.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "core/check.h"

namespace mpt {

std::string Spike::text() const {
  return fmt::format(
      "its loss is {:.1f} and its gradient norm {:.1f} standard deviations above the mean of the "
      "steps before it",
      loss_z, grad_norm_z);
}

SpikeGuard::SpikeGuard(const TrainConfig& config)
    : on_(config.spike_policy != SpikePolicy::kOff),
      z_(config.spike_z),
      window_(config.spike_window) {}

bool SpikeGuard::ready() const { return on_ && std::ssize(seen_) >= window_; }

SpikeGuard::Statistics SpikeGuard::of(double Seen::*value) const {
  const auto count = double(seen_.size());
  double sum = 0, squares = 0;
  for (const Seen& step : seen_) sum += step.*value;
  const double mean = sum / count;
  for (const Seen& step : seen_) squares += (step.*value - mean) * (step.*value - mean);
  constexpr double kLeast = 1e-3;  // of the mean
  return {mean, std::max(std::sqrt(squares / (count - 1)), kLeast * std::abs(mean))};
}

SpikeLimits SpikeGuard::limits() const {
  if (!ready()) {
    constexpr double kNone = std::numeric_limits<double>::infinity();
    return {kNone, kNone};
  }
  const Statistics loss = of(&Seen::loss), norm = of(&Seen::grad_norm);
  return {loss.mean + z_ * loss.deviation, norm.mean + z_ * norm.deviation};
}

bool SpikeGuard::stands_out(double loss, double grad_norm) const {
  const SpikeLimits most = limits();
  return loss > most.loss || grad_norm > most.grad_norm;
}

Spike SpikeGuard::compare(double loss, double grad_norm) const {
  check(ready(), "{} steps seen of {} to compare with", seen_.size(), window_);
  const auto z_of = [](double x, const Statistics& of) { return (x - of.mean) / of.deviation; };
  return {z_of(loss, of(&Seen::loss)), z_of(grad_norm, of(&Seen::grad_norm))};
}

void SpikeGuard::see(double loss, double grad_norm) {
  if (!on_) return;
  const SpikeLimits most = limits();
  seen_.push_back({std::min(loss, most.loss), std::min(grad_norm, most.grad_norm)});
  while (std::ssize(seen_) > window_) seen_.pop_front();
}

nlohmann::json SpikeGuard::json() const {
  if (!on_) return nullptr;
  nlohmann::json losses = nlohmann::json::array(), norms = nlohmann::json::array();
  for (const Seen& step : seen_) {
    losses.push_back(step.loss);
    norms.push_back(step.grad_norm);
  }
  return {{"losses", losses}, {"grad_norms", norms}};
}

void SpikeGuard::restore(const nlohmann::json& saved, const std::string& place) try {
  seen_.clear();
  if (!on_ || saved.is_null()) return;
  const nlohmann::json &losses = saved.at("losses"), &norms = saved.at("grad_norms");
  if (losses.size() != norms.size()) throw error("as many losses as norms");
  for (size_t i = 0; i < losses.size(); ++i)
    seen_.push_back({losses.at(i).get<double>(), norms.at(i).get<double>()});
  while (std::ssize(seen_) > window_) seen_.pop_front();
} catch (const std::exception& problem) {
  throw error("{}: not the losses and gradient norms of steps: {}", place, problem.what());
}

}  // namespace mpt
