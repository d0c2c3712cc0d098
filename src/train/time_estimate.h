// How long a run takes, judged by a short measurement on the device that it would run on.
//
//   seconds of a step = FLOPs of a step / measured FLOP/s of forward and backward + seconds of an update
//
// Measured are steps of the run's own model; where these would take too long, of one with fewer layers, a
// smaller vocabulary, less width or shorter rows, whose update is scaled by the number of parameters.
// Evaluations count as forward passes. Not counted are reading data, writing checkpoints and what ranks
// exchange.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/run_config.h"
#include "device/device.h"

namespace mpt {

struct TimeEstimate {
  std::optional<double> seconds{};  // of the whole run; none: not estimated
  double seconds_per_step = 0;
  double flops_per_second = 0;  // of forward and backward, measured
  std::string basis;            // what was measured, or why nothing was
};

// Trains for a fraction of a second. Several ranks are taken to share a CPU, and to have a GPU each.
TimeEstimate estimate_time(const RunConfig& config, Device& device, int64_t ranks = 1);

// GEMMs and attention of a step's forward and backward passes (performance.h).
double flops_per_step(const RunConfig& config);
int64_t evaluations(const RunConfig& config);

// The run itself, or one like it of which a step takes at most about `flops`.
RunConfig sample_of(const RunConfig& config, double flops);

// "about 3.5 h", "about 2.1 years"
std::string about(double seconds);

}  // namespace mpt
