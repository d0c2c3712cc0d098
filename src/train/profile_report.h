// What `mpretrain --profile` prints: where the time of a training step goes, operation by operation.
#pragma once

#include <cstdint>
#include <string>

#include "device/profiling.h"

namespace mpt {

struct ProfiledSteps {
  int64_t steps;        // that were profiled
  double product_rate;  // FLOP/s measured on the device
};

// A row for each operation, within what it is part of. Of its time a row's `self` lies in none of the rows
// below it: these percentages add up to 100. GFLOP/s where the matrix products of an operation are counted,
// also as a percentage of the product rate.
std::string profile_table(const Profile& profile, const ProfiledSteps& of);

}  // namespace mpt
