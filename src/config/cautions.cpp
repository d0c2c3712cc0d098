#include "config/cautions.h"

#include <fmt/format.h>

#include "optim/adam_moments.h"
#include "precision/weight_formats.h"

namespace mpt {
namespace {

// docs/numerics.md "Error feedback": the least beta1 from which on errors of NVFP4 weights that are
// rounded to nearest make the momentum grow. Measured: higher losses at .75, failures at .8 and .9.
constexpr double kUnstableBeta1 = 0.75;

bool feeds_back_unstably(const OptimizerConfig& optimizer, const PrecisionConfig& precision) {
  const AdamConfig* const adam = adam_of(optimizer.rule);
  return optimizer.error_feedback == ErrorFeedbackMode::kMomentum &&
         optimizer.weight_rounding == WeightRounding::kNearest &&
         precision.weights == WeightFormat::kNvfp4 && adam != nullptr &&
         adam->beta1 >= kUnstableBeta1;
}

// `place`: what stands before the keys of a phase, "phases.1." or "".
std::string text_of_unstable_feedback(const RunConfig& phase, const std::string& place) {
  return fmt::format(
      "{0}optimizer.error_feedback = momentum is unstable with {0}optimizer.weight_rounding = "
      "nearest, {0}precision.weights = nvfp4 and {0}optimizer.beta1 = {1}, at least {2}: the loss "
      "ends far above that of bf16 weights, or jumps late in the run; set "
      "{0}optimizer.weight_rounding=stochastic, or {0}optimizer.beta1 to 0.7",
      place, adam_of(phase.optimizer.rule)->beta1, kUnstableBeta1);
}

}  // namespace

std::vector<std::string> cautions(const RunConfig& config) {
  std::vector<std::string> texts;
  const std::vector<RunPhase> phases = run_phases(config);
  for (size_t i = 0; i < phases.size(); ++i) {
    const RunConfig& phase = phases[i].config;
    const std::string place = config.phases.empty() ? "" : fmt::format("phases.{}.", i);
    if (feeds_back_unstably(phase.optimizer, phase.precision))
      texts.push_back(text_of_unstable_feedback(phase, place));
  }
  return texts;
}

}  // namespace mpt
