// Repeated measurements: how they are taken, and which of their statistics are reported.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/json/json_parse.h"
#include "device/device.h"

namespace mpt {

double median_of(std::vector<double> values);

// {"median": ..., "min": ..., "max": ..., "samples": [...]}, in the order they were taken.
Json summary_of(const std::vector<double>& values);

// How much is measured: after the first run, blocks of at least this duration.
struct Effort {
  double seconds_per_block = 0.2;
  int64_t blocks = 7;
};

// Seconds per run of `work`, for each block: waits for the device only at the end of a block, so
// enqueueing costs nothing where it is faster than the work.
std::vector<double> seconds_per_run(Device& device, const Effort& effort,
                                    const std::function<void()>& work);

// Seconds from the start of `work` until the device has completed it.
double seconds_of(Device& device, const std::function<void()>& work);

}  // namespace mpt
