// AdamW runs in FP32, whose every update can be recomputed in FP64 from their checkpoints.
#pragma once

#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/parameters.h"
#include "support/tiny_run.h"

namespace mpt::test {

// Saves a checkpoint after each step (tiny_run.h).
inline const std::vector<std::string> kAdamWRun{"optimizer.rule=adamw",
                                                "optimizer.lr_multiplicative=null",
                                                "optimizer.lr_additive=0.01",
                                                "optimizer.beta1=0.5",
                                                "optimizer.beta2=0.75",
                                                "optimizer.eps=1e-4",
                                                "optimizer.weight_decay_additive=0.2",
                                                "schedule.warmup_steps=4",
                                                "schedule.final_fraction=0.1",
                                                "precision.weights=fp32",
                                                "precision.compute=fp32",
                                                "precision.gradient=fp32",
                                                "precision.optimizer_state=fp32"};

// docs/numerics.md "Learning-rate schedule": a linear warmup, then a cosine.
inline double adamw_run_rate(int64_t step) {
  constexpr double kPeak = 0.01, kWarmup = 4, kFinal = 0.1;
  if (double(step) <= kWarmup) return kPeak * double(step) / kWarmup;
  const double covered = (double(step) - kWarmup) / (double(kTinySteps) - kWarmup);
  return kPeak * (kFinal + (1 - kFinal) * 0.5 * (1 + std::cos(std::numbers::pi * covered)));
}

// Expects the move of the weights from `step` - 1 to `step` to be the `update`-th update of their
// moments.
inline void expect_adamw_update(const RunConfig& run, int64_t step, int64_t update) {
  const double rate = adamw_run_rate(step), correction1 = 1 - std::pow(0.5, double(update)),
               correction2 = 1 - std::pow(0.75, double(update));
  for (const ParamSpec& info : llama_parameters(run.model)) {
    const double decay = info.rank() == 1 ? 0 : 0.2;
    const std::vector<float> before = saved_values(run, step - 1, info.name),
                             after = saved_values(run, step, info.name),
                             m = saved_values(run, step, "m/" + info.name),
                             v = saved_values(run, step, "v/" + info.name);
    for (size_t i = 0; i < before.size(); ++i) {
      const double moved =
          rate * (m[i] / correction1 / (std::sqrt(v[i] / correction2) + 1e-4) + decay * before[i]);
      // Ten roundings of the step, one of the weight.
      ASSERT_NEAR(after[i], before[i] - moved,
                  10 * 0x1p-24 * std::abs(moved) + 0x1p-24 * std::abs(after[i]))
          << info.name << " at step " << step;
    }
  }
}

}  // namespace mpt::test
