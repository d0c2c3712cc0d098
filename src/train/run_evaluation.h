// Evaluation of a run's validation data, and generation of its sample texts, while it trains.
#pragma once

#include <optional>
#include <vector>

#include "config/batch_plan.h"
#include "config/run_config.h"
#include "config/run_data.h"
#include "evaluation/evaluate.h"
#include "ranks/communicator.h"
#include "ranks/run_failure.h"
#include "text/text_bytes.h"
#include "train/run_samples.h"
#include "train/step/training_model.h"

namespace mpt {

// All calls are collective.
class RunEvaluation {
 public:
  // All must outlive this object.
  struct Of {
    const RunConfig& config;  // of the phase
    const std::vector<ValidationSet>& sets;
    TrainingModel& model;
    Device& device;
    Communicator& ranks;
    RunFailure& failure;
  };
  explicit RunEvaluation(const Of& of);

  // Returns nullopt if interrupted by a signal, or by an error, which `failure` keeps. If
  // evaluation changes the state of training, it runs to completion despite a signal.
  [[nodiscard]] std::optional<ValidationResult> validate();
  // Returns none if the run writes none, or writing them failed.
  [[nodiscard]] std::vector<SampleText> samples();

 private:
  Of of_;
  TextBytes text_;                     // of the validation data
  std::optional<RunSamples> samples_;  // if the run writes some
};

}  // namespace mpt
