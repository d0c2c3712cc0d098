// Finds steps whose loss or gradient norm stands out of those before it.
//
// A value stands out if it is above the limit mean + z * deviation of the last `window` steps,
// where deviation is their standard deviation, at least a thousandth of the mean. Nothing stands
// out until `window` steps have been seen. Of a spike the limit is seen, not its value, so that a
// lasting change is accepted after some steps. Steps that are not finite are not seen.
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

// How many deviations above the mean.
struct Spike {
  double loss_z, grad_norm_z;
  [[nodiscard]] std::string text() const;  // "its loss is 9.1 …"
};

class SpikeGuard {
 public:
  explicit SpikeGuard(const TrainConfig& config);

  // Of the next step; infinite if it is too early, or spikes do not matter.
  [[nodiscard]] SpikeLimits limits() const;
  [[nodiscard]] bool stands_out(double loss, double grad_norm) const;
  // Of finite values, compared with the steps before; only if limits() are finite.
  [[nodiscard]] Spike compare(double loss, double grad_norm) const;
  void see(double loss, double grad_norm);

  // The steps that count, for a checkpoint; null if spikes do not matter.
  [[nodiscard]] nlohmann::json json() const;
  // As json() left it; begins anew if `saved` is null. Throws Error, naming `place`, for anything
  // else.
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
