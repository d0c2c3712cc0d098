// Estimates how long a run takes, from a short measurement on its device.
//
//   seconds per step = FLOPs per step / measured FLOP/s of forward and backward + update seconds
//
// Measures steps of the run's own model, or, if those would take too long, of a smaller one (fewer
// layers, smaller vocabulary, less width, shorter rows) whose update time is scaled by the number
// of parameters. Evaluations count as forward passes. Excludes reading data, writing checkpoints
// and communication between ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/run_config.h"
#include "device/device.h"

namespace mpt {

struct TimeEstimate {
  std::optional<double> seconds{};  // of the whole run; none if not estimated
  double seconds_per_step = 0;
  double flops_per_second = 0;  // of forward and backward, measured
  std::string basis;            // what was measured, or why nothing was
};

// Trains for a fraction of a second. Several ranks are assumed to share one CPU, or to have one GPU
// each.
TimeEstimate estimate_time(const RunConfig& config, Device& device, int64_t ranks = 1);

// GEMMs and attention of a step's forward and backward passes (gemm_rate.h).
double flops_per_step(const RunConfig& config);
int64_t evaluations(const RunConfig& config);

// Returns the run itself, or a smaller one like it with steps of at most about `flops`.
RunConfig sample_of(const RunConfig& config, double flops);

// "about 3.5 h", "about 2.1 years"
std::string about(double seconds);

}  // namespace mpt
