#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace mpt {
namespace {

// Fraction of the interval from `first` to `last` covered at t, 0..1; 1 if the interval is empty.
double progress(int64_t t, int64_t first, int64_t last) {
  if (last <= first) return 1.0;
  return std::clamp(double(t - first) / double(last - first), 0.0, 1.0);
}

}  // namespace

double schedule_factor(const ScheduleConfig& config, int64_t t, int64_t total_steps) {
  const int64_t update = std::clamp<int64_t>(t + config.lr_schedule_offset, 0, total_steps);
  const int64_t warmup = config.warmup_updates(total_steps);
  if (update < warmup) return double(update) / double(warmup);
  if (update == warmup) return 1.0;  // also if the run ends with its warmup
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

}  // namespace mpt
