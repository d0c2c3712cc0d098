// The `schedule` section of a config: the factor of every learning rate as a function of the update
// t = 1 .. total.
//
//   t <= W: t / W;  then, with s = (t - W) / (total - W) and final fraction f:
//   cosine f + (1 - f) (1 + cos pi s) / 2;   linear 1 + (f - 1) s;   constant 1;
//   inverse_sqrt sqrt(W / t);   wsd 1 until the last decay_fraction of the run, then down to f:
//   linear, or one_minus_sqrt f + (1 - f) (1 - sqrt s), with s the elapsed part of the decay.
// Defined for every t: t is clamped to 0 .. total. Details:
// docs/numerics.md "Learning-rate schedule".
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/json/config_struct.h"

namespace mpt {

enum class ScheduleShape : uint8_t { kCosine, kLinear, kConstant, kWsd, kInverseSqrt };
template <>
struct EnumNames<ScheduleShape> {
  static constexpr std::array<std::string_view, 5> kNames{"cosine", "linear", "constant", "wsd",
                                                          "inverse_sqrt"};
};

// Decay shape of wsd.
enum class DecayShape : uint8_t { kLinear, kOneMinusSqrt };
template <>
struct EnumNames<DecayShape> {
  static constexpr std::array<std::string_view, 2> kNames{"linear", "one_minus_sqrt"};
};

struct ScheduleConfig {
  static constexpr double kDefaultWarmupFraction = 0.1;

  ScheduleShape shape = ScheduleShape::kCosine;
  std::optional<int64_t> warmup_steps{};  // at most one of these two
  std::optional<double> warmup_fraction{};
  double final_fraction = 0.1;
  double decay_fraction = 0.2;
  DecayShape decay_shape = DecayShape::kLinear;
  int64_t lr_schedule_offset = 0;

  bool operator==(const ScheduleConfig&) const = default;

  // Returns the linear warmup updates in a run of `total_steps`, rounded to nearest.
  [[nodiscard]] int64_t warmup_updates(int64_t total_steps) const {
    if (warmup_steps) return *warmup_steps;
    return std::llround(warmup_fraction.value_or(kDefaultWarmupFraction) *
                        static_cast<double>(total_steps));
  }
  // Returns the updates at the end of a run during which `wsd` decays, rounded to nearest; one
  // fewer where both fractions were rounded up and together exceed the run.
  [[nodiscard]] int64_t decay_updates(int64_t total_steps) const {
    const int64_t decay = std::llround(decay_fraction * static_cast<double>(total_steps)),
                  left = total_steps - warmup_updates(total_steps);
    const double both = warmup_fraction.value_or(kDefaultWarmupFraction) + decay_fraction;
    return !warmup_steps && both <= 1 + 1e-12 ? std::min(decay, left) : decay;
  }

  void fields(Fields& f);
};

double schedule_factor(const ScheduleConfig& config, int64_t t, int64_t total_steps);

}  // namespace mpt
