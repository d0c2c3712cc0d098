// Repeated measurements: how they are taken, and what of them is reported.
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

// How much is measured: after the first run, blocks that take at least so long each.
struct Effort {
  double seconds_per_block = 0.2;
  int64_t blocks = 7;
};

// Seconds that one run of `work` takes, block by block: the device is waited for at the end of a
// block only, so that enqueueing costs nothing where it is faster than the work.
std::vector<double> seconds_per_run(Device& device, const Effort& effort,
                                    const std::function<void()>& work);

// Seconds that `work` takes until the device has done it.
double seconds_of(Device& device, const std::function<void()>& work);

}  // namespace mpt
