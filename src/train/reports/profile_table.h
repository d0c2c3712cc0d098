// Output of `mpretrain --profile`: the time of a training step by operation.
#pragma once

#include <cstdint>
#include <string>

#include "device/profiling.h"

namespace mpt {

struct ProfiledSteps {
  int64_t steps;     // steps profiled
  double gemm_rate;  // FLOP/s measured on the device
};

// One row per operation, nested under its parent. `self` is the time not covered by child rows, so
// its percentages add up to 100. Operations with counted GEMMs show GFLOP/s, also as a percentage
// of the GEMM rate.
std::string profile_table(const Profile& profile, const ProfiledSteps& of);

}  // namespace mpt
