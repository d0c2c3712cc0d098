// The schedule at its corners: first update, end of warmup, last update, beyond, and runs too short
// for their warmup.
#include "optim/schedule.h"

#include <cmath>
#include <numbers>
#include <utility>

#include <gtest/gtest.h>

namespace mpt {
namespace {

constexpr ScheduleShape kScheduleShapes[] = {ScheduleShape::kCosine, ScheduleShape::kLinear,
                                             ScheduleShape::kConstant, ScheduleShape::kWsd,
                                             ScheduleShape::kInverseSqrt};

ScheduleConfig with_warmup(ScheduleShape shape, int64_t warmup) {
  ScheduleConfig config;
  config.shape = shape;
  config.warmup_steps = warmup;
  return config;
}

double end_of(const ScheduleConfig& config) {
  if (config.shape == ScheduleShape::kInverseSqrt) return std::sqrt(100.0 / 1000);
  return config.shape == ScheduleShape::kConstant ? 1.0 : config.final_fraction;
}

TEST(Schedule, EveryShapeAtItsCorners) {
  for (const ScheduleShape shape : kScheduleShapes) {
    SCOPED_TRACE(name_of(shape));
    const ScheduleConfig config = with_warmup(shape, 100);
    EXPECT_EQ(schedule_factor(config, 1, 1000), 0.01);
    EXPECT_EQ(schedule_factor(config, 50, 1000), 0.5);
    EXPECT_EQ(schedule_factor(config, 99, 1000), 0.99);
    EXPECT_EQ(schedule_factor(config, 100, 1000), 1.0);
    EXPECT_LE(schedule_factor(config, 101, 1000), 1.0);
    EXPECT_EQ(schedule_factor(config, 1000, 1000), end_of(config));
    EXPECT_EQ(schedule_factor(config, 1001, 1000), end_of(config));
    EXPECT_EQ(schedule_factor(config, int64_t{1} << 60, 1000), end_of(config));
    EXPECT_EQ(schedule_factor(config, 0, 1000), 0.0);
    EXPECT_EQ(schedule_factor(config, -5, 1000), 0.0);
  }
}

// The end is exactly the floor, not a value close to it, for any warmup and floor.
TEST(Schedule, TheFloorIsReachedExactly) {
  for (const ScheduleShape shape :
       {ScheduleShape::kCosine, ScheduleShape::kLinear, ScheduleShape::kWsd})
    for (const double floor : {0.0, 0.1, 0.3, 1.0 / 3, 0.7, 1.0})
      for (const int64_t warmup : {0, 1, 7, 99})
        for (const int64_t total : {100, 101, 10000}) {
          ScheduleConfig config = with_warmup(shape, warmup);
          config.final_fraction = floor;
          EXPECT_EQ(schedule_factor(config, total, total), floor)
              << name_of(shape) << " " << warmup;
        }
}

TEST(Schedule, CosineAtNamedPoints) {
  const ScheduleConfig config = with_warmup(ScheduleShape::kCosine, 100);
  // The decay runs over the 900 updates after the warmup, not over all 1000.
  EXPECT_NEAR(schedule_factor(config, 550, 1000), 0.1 + 0.9 * 0.5, 0x1p-50);
  EXPECT_NEAR(schedule_factor(config, 400, 1000), 0.1 + 0.9 * 0.5 * (1 + 0.5), 0x1p-50);
  EXPECT_NEAR(schedule_factor(config, 700, 1000), 0.1 + 0.9 * 0.5 * (1 - 0.5), 0x1p-50);
  EXPECT_NEAR(schedule_factor(config, 101, 1000),
              0.1 + 0.9 * 0.5 * (1 + std::cos(std::numbers::pi / 900)), 0x1p-50);
}

TEST(Schedule, LinearAtNamedPoints) {
  ScheduleConfig config = with_warmup(ScheduleShape::kLinear, 200);
  config.final_fraction = 0.5;
  EXPECT_EQ(schedule_factor(config, 600, 1000), 0.75);
  EXPECT_EQ(schedule_factor(config, 400, 1000), 0.875);
}

TEST(Schedule, ConstantStaysAtOne) {
  const ScheduleConfig config = with_warmup(ScheduleShape::kConstant, 10);
  for (const int64_t t : {10, 11, 500, 1000, 2000})
    EXPECT_EQ(schedule_factor(config, t, 1000), 1.0);
}

TEST(Schedule, WsdDecaysDuringItsLastPart) {
  ScheduleConfig config = with_warmup(ScheduleShape::kWsd, 100);
  config.decay_fraction = 0.25;
  config.final_fraction = 0.5;
  EXPECT_EQ(schedule_factor(config, 101, 1000), 1.0);
  EXPECT_EQ(schedule_factor(config, 750, 1000), 1.0);
  EXPECT_LT(schedule_factor(config, 751, 1000), 1.0);
  EXPECT_EQ(schedule_factor(config, 875, 1000), 0.75);
  EXPECT_EQ(schedule_factor(config, 1000, 1000), 0.5);
  config.decay_fraction = 0;
  EXPECT_EQ(schedule_factor(config, 1000, 1000), 1.0);
  // A decay that would begin within the warmup begins at its end.
  config.decay_fraction = 1;
  EXPECT_EQ(schedule_factor(config, 100, 1000), 1.0);
  EXPECT_EQ(schedule_factor(config, 550, 1000), 0.75);
}

// Both parts may have been rounded up.
TEST(Schedule, WarmupAndDecayThatFillTheRunAreAsLongAsTheRun) {
  ScheduleConfig config{.shape = ScheduleShape::kWsd, .decay_fraction = 0.5};
  config.warmup_fraction = 0.5;
  EXPECT_EQ(config.decay_updates(1001), 500);
  EXPECT_EQ(config.decay_updates(1000), 500);
  config.decay_fraction = 0.6;  // not a matter of rounding
  EXPECT_EQ(config.decay_updates(1001), 601);
}

TEST(Schedule, OneMinusSqrtFallsFastAtFirst) {
  ScheduleConfig config = with_warmup(ScheduleShape::kWsd, 100);
  config.decay_fraction = 0.4;
  config.decay_shape = DecayShape::kOneMinusSqrt;
  config.final_fraction = 0.2;
  EXPECT_EQ(schedule_factor(config, 600, 1000), 1.0);
  for (const auto& [t, root] : {std::pair<int64_t, double>{604, 0.1}, {616, 0.2}, {700, 0.5}})
    EXPECT_NEAR(schedule_factor(config, t, 1000), 0.2 + 0.8 * (1 - root), 0x1p-50) << t;
  EXPECT_EQ(schedule_factor(config, 1000, 1000), 0.2);
}

// Without warmup, the same as after one of a single update.
TEST(Schedule, InverseSqrtDoesNotKnowTheLength) {
  const ScheduleConfig config = with_warmup(ScheduleShape::kInverseSqrt, 100);
  for (const int64_t total : {400, 1000, 100000}) {
    EXPECT_EQ(schedule_factor(config, 225, total), 100.0 / 150) << total;
    EXPECT_EQ(schedule_factor(config, 400, total), 0.5) << total;
  }
  const ScheduleConfig at_once = with_warmup(ScheduleShape::kInverseSqrt, 0);
  EXPECT_EQ(schedule_factor(at_once, 1, 1000), 1.0);
  EXPECT_EQ(schedule_factor(at_once, 4, 1000), 0.5);
}

TEST(Schedule, WithoutWarmupItStartsFromOne) {
  for (const ScheduleShape shape : kScheduleShapes) {
    const ScheduleConfig config = with_warmup(shape, 0);
    EXPECT_GT(schedule_factor(config, 1, 1000), 0.998) << name_of(shape);
    EXPECT_LE(schedule_factor(config, 1, 1000), 1.0) << name_of(shape);
  }
}

// Warmup as long as the run, or longer: t / W all the way.
TEST(Schedule, WarmupOfTheWholeRun) {
  for (const ScheduleShape shape : kScheduleShapes) {
    SCOPED_TRACE(name_of(shape));
    EXPECT_EQ(schedule_factor(with_warmup(shape, 100), 99, 100), 0.99);
    EXPECT_EQ(schedule_factor(with_warmup(shape, 100), 100, 100), 1.0);
    EXPECT_EQ(schedule_factor(with_warmup(shape, 200), 100, 100), 0.5);
    EXPECT_EQ(schedule_factor(with_warmup(shape, 200), 150, 100), 0.5);
  }
}

TEST(Schedule, OffsetMinusOneGivesTheFirstUpdateRateZero) {
  for (const ScheduleShape shape : kScheduleShapes) {
    ScheduleConfig config = with_warmup(shape, 10);
    ScheduleConfig shifted = config;
    shifted.lr_schedule_offset = -1;
    EXPECT_EQ(schedule_factor(shifted, 1, 100), 0.0);
    for (int64_t t = 2; t <= 100; ++t)
      EXPECT_EQ(schedule_factor(shifted, t, 100), schedule_factor(config, t - 1, 100)) << t;
  }
}

TEST(Schedule, WarmupAsAShareOfTheRun) {
  ScheduleConfig config;
  EXPECT_EQ(config.warmup_updates(1000), 100) << "a tenth where nothing is said";
  EXPECT_EQ(config.warmup_updates(4), 0);
  EXPECT_EQ(config.warmup_updates(5), 1) << "to the nearest";
  config.warmup_fraction = 0.02;
  EXPECT_EQ(config.warmup_updates(1000), 20);
  config.warmup_fraction.reset();
  config.warmup_steps = 7;
  EXPECT_EQ(config.warmup_updates(1000), 7);
}

// Within [0, 1] and never a NaN, for any length of the run and of its parts.
TEST(Schedule, IsDefinedEverywhere) {
  for (const ScheduleShape shape : kScheduleShapes)
    for (const int64_t total : {0, 1, 2, 3, 10})
      for (const int64_t warmup : {0, 1, 2, 3, 20})
        for (const double decay : {0.0, 0.2, 1.0})
          for (const int64_t offset : {-1, 0})
            for (int64_t t = -2; t <= total + 2; ++t) {
              ScheduleConfig config = with_warmup(shape, warmup);
              config.decay_fraction = decay;
              config.lr_schedule_offset = offset;
              const double factor = schedule_factor(config, t, total);
              EXPECT_TRUE(factor >= 0 && factor <= 1)
                  << name_of(shape) << " " << total << " " << warmup << " " << t;
            }
}

// Rises during the warmup, then never again.
TEST(Schedule, RisesThenFalls) {
  for (const ScheduleShape shape : kScheduleShapes) {
    const ScheduleConfig config = with_warmup(shape, 37);
    for (int64_t t = 1; t <= 300; ++t) {
      const double step = schedule_factor(config, t, 300) - schedule_factor(config, t - 1, 300);
      if (t <= 37)
        EXPECT_GT(step, 0) << name_of(shape) << " " << t;
      else
        EXPECT_LE(step, 0) << name_of(shape) << " " << t;
    }
  }
}

}  // namespace
}  // namespace mpt
