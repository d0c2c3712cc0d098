#include "train/run_evaluation.h"

#include "train/stop_signal.h"

namespace mpt {

RunEvaluation::RunEvaluation(const Of& of)
    : of_(of),
      text_(of.sets.empty() ? TextBytes() : text_of_data(of.config.data)),
      samples_(of.config.eval.samples_every > 0 ? std::optional<RunSamples>(of.config)
                                                : std::nullopt) {}

std::optional<ValidationResult> RunEvaluation::validate() {
  const RunConfig& config = of_.config;
  const ProfileScope scope(of_.device, "evaluation");
  const bool changes_state = config.precision.compute == ComputeFormat::kFp8 &&
                             config.precision.fp8_eval_amax == EvalAmax::kFold;
  StopSignal::stops(changes_state ? StopPoint::kAfterEvaluation : StopPoint::kWithinEvaluation);
  const BatchPlan batch = batch_plan(config.batch, of_.ranks.rank(), of_.ranks.size());
  EvaluationOptions options{.rows_per_batch = batch.micro_batch_rows,
                            .tokens = config.eval.tokens,
                            .galore_batch_rows = galore_batch_rows(config),
                            .text = &text_,
                            .ranks = of_.ranks};
  if (!changes_state) options.leave = [] { return StopSignal::received() != 0; };
  of_.model.all_gather_weights();
  try {
    return evaluate(of_.model.llama, of_.sets, options);
  } catch (const EvaluationLeft& left) {
    if (left.failure) of_.failure.keep(left.failure);
    return std::nullopt;
  }
}

std::vector<SampleText> RunEvaluation::samples() {
  if (!samples_) return {};
  const ProfileScope scope(of_.device, "samples");
  StopSignal::stops(StopPoint::kAfterEvaluation);
  of_.model.all_gather_weights();
  std::vector<SampleText> samples;
  of_.failure.attempt([&] { samples = samples_->write(of_.model.llama); });
  return samples;
}

}  // namespace mpt
