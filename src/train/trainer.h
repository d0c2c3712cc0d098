// The training loop: batches in, weights out, exactly resumable.
//
// The state of a run is the named tensors, the step, the data cursor, the counts of updates that
// were dropped or made before the moments began, the losses and norms that spikes are compared
// with, the order of data that was read under another config, and the choices of GEMMs. The next
// step depends only on these and the config; the number of ranks changes only the order of sums
// and, with FP8 GEMMs, how often scales move.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/io/file_system.h"
#include "data/mixture.h"
#include "device/device.h"
#include "ranks/communicator.h"
#include "ranks/run_failure.h"
#include "train/incidents/incidents.h"
#include "train/reports/run_logger.h"
#include "train/run_checkpoints.h"
#include "train/run_evaluation.h"
#include "train/run_state.h"
#include "train/step/step.h"
#include "train/step/training_model.h"
#include "train/training_data.h"
#include "weights/loaded_model.h"

namespace mpt {

class Trainer {
 public:
  // Trains one phase of the run (run_phases). Opens the data and allocates all memory. Call
  // initialize() or resume() next: the weights are not set. With several ranks, each has its own
  // trainer and all calls are collective. `device`, `fs` and `ranks` must outlive this object.
  Trainer(const RunConfig& config, Device& device, FileSystem& fs,
          Communicator& ranks = Communicator::single(), size_t phase = 0);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  void initialize();
  // Starts at step 0 from the weights of a checkpoint with the model of this run
  // (initial_weights.h); weights in another format are rounded to nearest.
  void initialize_from(const SavedWeights& saved);
  // Continues from a verified checkpoint of this phase, or of the end of the previous phase
  // (phase_entry.h), saved by any number of ranks. Throws Error if model, data or seed differ; logs
  // every other config key that has changed.
  void resume(const std::string& checkpoint);

  // Trains to the last step of the phase, or until any rank receives a signal (stop_signal.h) or
  // fails between two steps (run_failure.h). Saves the last finished step either way. Returns true
  // if the phase is complete; after a failure, throws it with a note of what is saved. An error
  // within a step, or because a step is not finite, is thrown at once.
  bool run();

  // Trains `steps` more steps and writes nothing. Not to be mixed with run().
  void run_unrecorded(int64_t steps);

  [[nodiscard]] int64_t current_step() const { return state_.step; }
  // How many of them made no update.
  [[nodiscard]] int64_t skipped_steps() const { return state_.skipped; }
  // After run(): the checkpoint of the current step, saved or loaded; "" if none.
  [[nodiscard]] const std::string& last_checkpoint() const { return checkpoints_.last(); }
  [[nodiscard]] const Mixture& training_data() const { return data_.training(); }
  [[nodiscard]] const std::vector<ValidationSet>& validation_data() const {
    return data_.validation();
  }
  [[nodiscard]] const MemoryUse& memory() const { return allocator_->use(); }

 private:
  // A run's phases, and which of them to train.
  struct Phase {
    std::vector<RunPhase> all;
    size_t number;

    [[nodiscard]] const RunPhase& now() const { return all[number]; }
    [[nodiscard]] const RunConfig& config() const { return all[number].config; }
    [[nodiscard]] int64_t total_steps() const { return all.back().last_step; }  // of the run
    [[nodiscard]] bool begins_after(int64_t step) const;
    // Gradients of a different number of rows have norms of a different size.
    [[nodiscard]] bool begins_with_another_batch(int64_t step) const;
  };
  struct Place {
    Device& device;
    FileSystem& fs;
    Communicator& ranks;
  };

  // Returns null on all ranks but 0.
  [[nodiscard]] std::unique_ptr<RunLogger> open_logger();
  std::optional<StepRecord> step(RunLogger* logger);
  void evaluate_if_due(StepRecord& record);
  [[nodiscard]] std::optional<ValidationResult> validated();
  [[nodiscard]] std::vector<SampleText> samples_if_due();
  void run_pending_evaluation(RunLogger* logger);
  void handle(const StepRecord& record, RunLogger* logger);
  void stop_if_ruined(const StepRecord& record);
  [[noreturn]] void stop_at(const StepRecord& record);
  void roll_back(const StepRecord& record, RunLogger* logger);
  void check_replicas();
  void finish(RunLogger* logger);
  void save_last_step(RunLogger* logger);
  [[nodiscard]] std::string what_is_saved(const std::string& problem) const;
  void save(RunLogger* logger);
  [[nodiscard]] bool due(int64_t every_steps) const;
  [[nodiscard]] TrainState state_to_save() const;
  void load(const TrainState& saved, const std::string& checkpoint);
  [[nodiscard]] RunState enter(const TrainState& saved, const std::string& checkpoint);

  Phase phase_;
  Place place_;
  TrainingData data_;
  std::unique_ptr<Allocator> allocator_;
  TrainingModel model_;
  RunState state_;
  Incidents incidents_;
  RunFailure failure_;  // of this rank
  RunCheckpoints checkpoints_;
  RunEvaluation evaluation_;
  TrainStep step_;
};

}  // namespace mpt
