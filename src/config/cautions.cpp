#include "config/cautions.h"

#include <fmt/format.h>

#include "optim/adam_moments.h"
#include "precision/weight_formats.h"

namespace mpt {
namespace {

// docs/numerics.md "Error feedback": the lowest beta1 at which a stored weight rounded to nearest
// may lag behind the optimizer's by its own size and so is no longer controlled. 0.75 in NVFP4,
// 0.9375 in FP8; 1 where elements share no scale.
double unsteered_beta1(WeightFormat format) {
  return with_format(format, []<class W>(std::type_identity<W>) {
    return 2.0 - double(W::Codec::kSmallestRatio);
  });
}

bool feeds_back_unstably(const OptimizerConfig& optimizer, const PrecisionConfig& precision) {
  const AdamConfig* const adam = adam_of(optimizer.rule);
  return optimizer.error_feedback == ErrorFeedbackMode::kMomentum &&
         optimizer.weight_rounding == WeightRounding::kNearest && adam != nullptr &&
         adam->beta1 >= unsteered_beta1(precision.weights);
}

// `place` is the prefix of a phase's keys, "phases.1.", or "".
std::string text_of_unstable_feedback(const RunConfig& phase, const std::string& place) {
  const WeightFormat weights = phase.precision.weights;
  return fmt::format(
      "{0}optimizer.error_feedback = momentum is unstable with {0}optimizer.weight_rounding = "
      "nearest, {0}precision.weights = {1} and {0}optimizer.beta1 = {2}, at least {3}: the loss "
      "ends far above that of bf16 weights, or jumps late in the run; set "
      "{0}optimizer.weight_rounding=stochastic, or {0}optimizer.beta1 below {3}",
      place, name_of(weights), adam_of(phase.optimizer.rule)->beta1, unsteered_beta1(weights));
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
