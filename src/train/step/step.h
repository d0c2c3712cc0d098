// A training step: a batch in, new weights out, by all ranks.
#pragma once

#include <cstdint>
#include <optional>

#include "config/run_config.h"
#include "ranks/communicator.h"
#include "ranks/run_failure.h"
#include "train/incidents/incidents.h"
#include "train/reports/run_logger.h"
#include "train/run_checkpoints.h"
#include "train/run_state.h"
#include "train/step/device_step.h"
#include "train/step/training_model.h"
#include "train/training_data.h"

namespace mpt {

class TrainStep {
 public:
  // All must outlive this object.
  struct Of {
    const RunConfig& config;  // of the phase
    TrainingModel& model;
    TrainingData& data;
    RunState& state;
    Incidents& incidents;
    RunCheckpoints& checkpoints;
    RunFailure& failure;
    Device& device;
    Communicator& ranks;
  };
  // The run has `total_steps`, the phase ends after `last_step`.
  TrainStep(const Of& of, int64_t total_steps, int64_t last_step);

  // Reads the next batch. Throws Error if it has nothing to train on.
  void await_batch();
  // Makes the next step and awaits the batch of the one after it. Returns nullopt if a signal
  // abandoned it before its update; all state is then as before. `logger`: null on all ranks but 0.
  // Collective.
  std::optional<StepRecord> run(RunLogger* logger);

 private:
  std::optional<StepRecord> run_of_this_rank(RunLogger* logger);
  struct Status;
  void exchange_status(StepRecord& record);
  Batch next_batch();
  [[nodiscard]] StopPoint stop_point() const;
  void stage(const Batch& batch);
  [[nodiscard]] bool enqueue(StepRecord& record, RunLogger* logger);
  [[nodiscard]] bool try_gradients(RunLogger* logger);
  void update_with_statistics(StepRecord& record, StepScalars scalars);
  [[nodiscard]] bool counts_updates() const;

  Of of_;
  int64_t total_steps_, last_step_;
  DeviceStep work_;
  double seconds_ = 0;  // of the last step on the slowest rank
};

}  // namespace mpt
