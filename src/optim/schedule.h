// The factor that multiplies every learning rate, as a function of the update t = 1 .. total.
//
//   t <= W: t / W;  then, with s = (t - W) / (total - W) and final fraction f:
//   cosine f + (1 - f) (1 + cos pi s) / 2;   linear 1 + (f - 1) s;   constant 1;
//   wsd 1 until the last decay_fraction of the run, then linear down to f.
// Defined for every t: 0 or below gives the factor of 0, beyond the end that of the end. In full:
// docs/numerics.md "Learning-rate schedule".
#pragma once

#include "optim/schedule_config.h"

namespace mpt {

double schedule_factor(const ScheduleConfig& config, int64_t t, int64_t total_steps);

}  // namespace mpt
