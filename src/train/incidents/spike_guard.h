// Detects spikes of loss or gradient norm against a running mean.
//
// A value is an outlier if it is above the limit mean + z * deviation of the last `window` steps,
// where deviation is their standard deviation, at least a thousandth of the mean. Nothing is an
// outlier until `window` steps have been seen. A spike enters the window as the limit, not its
// value, so that a lasting change is accepted after some steps. Steps that are not finite do not
// enter it.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include <nlohmann/json.hpp>

#include "config/run_config.h"

namespace mpt {

// Largest values of a step that is not a spike.
struct SpikeLimits {
  double loss, grad_norm;
};

// Number of deviations above the mean.
struct Spike {
  double loss_z, grad_norm_z;
  [[nodiscard]] std::string text() const;  // "its loss is 9.1 …"
};

class SpikeGuard {
 public:
  explicit SpikeGuard(const TrainConfig& config);

  // Limits of the next step; infinite if it is too early, or spikes are ignored.
  [[nodiscard]] SpikeLimits limits() const;
  [[nodiscard]] bool stands_out(double loss, double grad_norm) const;
  // Compares finite values with the preceding steps; only if limits() are finite.
  [[nodiscard]] Spike compare(double loss, double grad_norm) const;
  void see(double loss, double grad_norm);

  // The steps in the window, for a checkpoint; null if spikes are ignored.
  [[nodiscard]] nlohmann::json json() const;
  // Restores the result of json(); starts anew if `saved` is null. Throws Error, naming `place`,
  // for anything else.
  void restore(const nlohmann::json& saved, const std::string& place);

 private:
  struct Seen {
    double loss, grad_norm;
  };
  struct Statistics {
    double mean, deviation;
  };
  [[nodiscard]] bool ready() const;
  [[nodiscard]] Statistics of(double Seen::*value) const;

  bool on_;
  double z_;
  int64_t window_;
  std::deque<Seen> seen_;
};

}  // namespace mpt
