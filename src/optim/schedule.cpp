#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/json/config_fields.h"

namespace mpt {
namespace {

// Returns the fraction of the interval from `first` to `last` covered at t, 0..1; 1 if it is empty.
double progress(int64_t t, int64_t first, int64_t last) {
  if (last <= first) return 1.0;
  return std::clamp(double(t - first) / double(last - first), 0.0, 1.0);
}

}  // namespace

double schedule_factor(const ScheduleConfig& config, int64_t t, int64_t total_steps) {
  const int64_t update = std::clamp<int64_t>(t + config.lr_schedule_offset, 0, total_steps);
  const int64_t warmup = config.warmup_updates(total_steps);
  if (update < warmup) return double(update) / double(warmup);
  if (update == warmup) return 1.0;  // even if the run ends with its warmup
  switch (config.shape) {
    case ScheduleShape::kConstant:
      return 1.0;
    case ScheduleShape::kLinear:
      return std::lerp(1.0, config.final_fraction, progress(update, warmup, total_steps));
    case ScheduleShape::kWsd: {
      const int64_t decay = total_steps - config.decay_updates(total_steps);
      if (update <= decay) return 1.0;
      const double s = progress(update, std::max(decay, warmup), total_steps);
      return std::lerp(1.0, config.final_fraction,
                       config.decay_shape == DecayShape::kLinear ? s : std::sqrt(s));
    }
    case ScheduleShape::kInverseSqrt:
      return std::sqrt(double(std::max<int64_t>(warmup, 1)) / double(update));
    case ScheduleShape::kCosine:
      break;
  }
  const double s = progress(update, warmup, total_steps);
  return config.final_fraction +
         (1.0 - config.final_fraction) * 0.5 * (1.0 + std::cos(std::numbers::pi * s));
}

void ScheduleConfig::fields(Fields& f) {
  f.optional(
      "shape", shape,
      {.doc = "shape after the linear warmup: cosine or linear down to final_fraction, constant, "
              "wsd (constant, then down during the last decay_fraction of the run), or "
              "inverse_sqrt (the root of warmup updates over updates, whatever the run's "
              "length)"});
  f.optional("warmup_steps", warmup_steps,
             {.minimum = 0,
              .maximum = 1e9,
              .doc = "warmup updates; cannot be combined with warmup_fraction"});
  f.optional("warmup_fraction", warmup_fraction,
             {.minimum = 0,
              .maximum = 1,
              .doc = "warmup as a fraction of the run; cannot be combined with warmup_steps; 0.1 "
                     "if neither is given"});
  f.optional(
      "final_fraction", final_fraction,
      {.minimum = 0,
       .maximum = 1,
       .only_with = only_with(
           "shape", shape, {ScheduleShape::kCosine, ScheduleShape::kLinear, ScheduleShape::kWsd}),
       .doc = "learning-rate factor of the last update"});
  f.optional("decay_fraction", decay_fraction,
             {.minimum = 0,
              .maximum = 1,
              .only_with = only_with("shape", shape, {ScheduleShape::kWsd}),
              .doc = "fraction of the run in which wsd decays"});
  f.optional("decay_shape", decay_shape,
             {.only_with = only_with("shape", shape, {ScheduleShape::kWsd}),
              .doc = "how wsd decays: linear, or one_minus_sqrt, which falls fast at first"});
  f.optional("lr_schedule_offset", lr_schedule_offset,
             {.minimum = -1,
              .maximum = 0,
              .doc = "-1: update t uses the factor of t - 1, so a warmup begins with rate 0"});
}

}  // namespace mpt
