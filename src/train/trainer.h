// The training loop: batches in, weights out, exactly resumable.
//
// The state of a run is the named tensors, the step, the data cursor, the counts of updates that
// were left out or made before the moments began, the losses and norms that spikes are compared
// with, the order of data that was read under another config, and the choices of GEMMs. The next
// step depends only on these and the config; the number of ranks changes only the order of sums
// and, with FP8 GEMMs, how often scales move.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_saver.h"
#include "checkpoint/commit_command.h"
#include "comm/communicator.h"
#include "config/run_config.h"
#include "config/run_inputs.h"
#include "core/io/file_system.h"
#include "data/dataloader.h"
#include "inference/evaluate.h"
#include "inference/loaded_model.h"
#include "parallel/run_failure.h"
#include "train/resume/resumed_data.h"
#include "train/run_logger.h"
#include "train/run_samples.h"
#include "train/stop_signal.h"
#include "train/training_model.h"

namespace mpt {

class Trainer {
 public:
  // Trains one phase of the run (run_phases). Opens the data and allocates all memory. Call
  // initialize() or resume() next: the weights are not set. With several ranks, each has a trainer
  // and all calls are collective. `device`, `fs` and `ranks` must outlive this object.
  Trainer(const RunConfig& config, Device& device, FileSystem& fs,
          Communicator& ranks = Communicator::single(), size_t phase = 0);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  void initialize();
  // Starts at step 0 from the weights of a checkpoint, which has the model of this run
  // (initial_weights.h); what is not in the format of this run is rounded to nearest.
  void initialize_from(const SavedWeights& saved);
  // Continues from a verified checkpoint of this phase, or of the end of the one before it
  // (phase_entry.h), saved by any number of ranks. Throws Error if model, data or seed differ; logs
  // every other config key that has changed.
  void resume(const std::string& checkpoint);

  // Trains to the last step of the phase, or until any rank receives a signal (stop_signal.h) or
  // fails between two steps (run_failure.h). Saves the last finished step either way. Returns true
  // if the phase is complete; throws a failure then, saying what is saved. An error within a step,
  // or of a step that is not finite, is thrown at once.
  bool run();

  // Trains `steps` more steps and writes nothing. Not to be mixed with run().
  void run_unrecorded(int64_t steps);

  [[nodiscard]] int64_t current_step() const { return step_; }
  // Of them, those without an update.
  [[nodiscard]] int64_t skipped_steps() const { return skipped_; }
  // After run(): the checkpoint of the current step, saved or loaded; "" if none.
  [[nodiscard]] const std::string& last_checkpoint() const { return last_checkpoint_; }
  [[nodiscard]] const Mixture& training_data() const { return *train_data_; }
  [[nodiscard]] const std::vector<ValidationSet>& validation_data() const {
    return validation_data_;
  }
  [[nodiscard]] const MemoryUse& memory() const { return allocator_->use(); }

 private:
  // Null on all ranks but 0.
  [[nodiscard]] std::unique_ptr<RunLogger> open_logger();
  // nullopt if a signal abandoned the step before its update; all state is then as before it.
  std::optional<StepRecord> step(RunLogger* logger);
  // The same, by all ranks: with what they exchange after a step.
  std::optional<StepRecord> step_of_all(RunLogger* logger);
  Batch next_batch();
  void await_batch();
  [[nodiscard]] bool enqueue(StepRecord& record, RunLogger* logger);
  [[nodiscard]] bool try_gradients(RunLogger* logger);
  [[nodiscard]] StopPoint stop_point() const;
  void stage(const Batch& batch);
  [[nodiscard]] StepScalars scalars_of(const StepRecord& record) const;
  void update_with_statistics(StepRecord& record, StepScalars scalars);
  [[nodiscard]] bool counts_updates() const;
  void warn_of_frozen_scales();
  void check_replicas();
  [[nodiscard]] std::optional<ValidationResult> evaluation();
  [[nodiscard]] std::vector<SampleText> samples_if_due();
  void make_evaluation_left(RunLogger* logger);
  [[nodiscard]] bool begins_with_another_batch() const;
  [[nodiscard]] bool spikes_are_left_out() const;
  void limit_step(const Batch& batch);
  void judge(StepRecord& record);
  enum class Remedy : uint8_t { kGoOn, kRollBack, kStop };
  [[nodiscard]] Remedy remedy_for(const StepRecord& record) const;
  void require_finite_steps(const StepRecord& record);
  void handle_trouble(const StepRecord& record, RunLogger* logger);
  void roll_back(const StepRecord& record, RunLogger* logger);
  [[nodiscard]] bool one_has_failed();
  [[nodiscard]] bool stops() const;
  void finish(RunLogger* logger);
  void save_last_step(RunLogger* logger);
  [[nodiscard]] std::string what_is_saved(const std::string& problem) const;
  void save(RunLogger* logger);
  void report_save(const std::optional<SaveReport>& report);
  void watch_command();
  void finish_command();
  struct StepStatus;
  void exchange_status(StepRecord& record);
  [[nodiscard]] bool due(int64_t every_steps) const;
  [[nodiscard]] TrainState state() const;
  void load(const std::string& checkpoint);
  TrainState load_state(const std::string& checkpoint);

  std::vector<RunPhase> phases_;
  size_t phase_;
  const RunConfig& config_;  // of the phase
  Device& device_;
  FileSystem& fs_;
  Communicator& ranks_;
  BatchPlan batch_;
  int64_t total_steps_;
  std::shared_ptr<const Mixture> train_data_;
  std::vector<ValidationSet> validation_data_;
  DataContents train_shards_, validation_shards_;  // as they were when they were opened
  FormerData former_;                              // of the run that this one continues
  TextBytes text_;                                 // of the validation data
  std::optional<RunSamples> samples_;              // if the run writes some
  std::unique_ptr<Allocator> allocator_;
  TrainingModel model_;
  DataLoader loader_;
  CheckpointStore checkpoints_;
  CheckpointSaver saver_;
  CommitCommand on_commit_;  // of rank 0
  TrainingStep work_;
  SpikeGuard spikes_;
  RunFailure failure_;            // of this rank
  int64_t step_ = 0;              // optimizer steps done
  int64_t skipped_ = 0;           // steps done without an update
  int64_t earlier_updates_ = 0;   // before the moments began
  int64_t tokens_ = 0;            // predicted so far
  int64_t rollbacks_ = 0;         // since the last saved checkpoint
  int64_t unfinite_ = 0;          // steps in a row that were not finite
  int64_t frozen_ = 0;            // ineffective FP8 scale updates already warned of
  bool stopping_ = false;         // a rank received a signal, or failed
  bool evaluation_left_ = false;  // of this step, because of that
  double seconds_ = 0;            // duration of the last step on the slowest rank
  int64_t last_saved_ = -1;       // step of the newest checkpoint, committed or in progress
  std::string last_checkpoint_;   // the newest that is committed, or was loaded
  // The checkpoint that was resumed, if it is not of this run's directory; what lies there up to
  // its step is of another run.
  std::string from_elsewhere_;
  int64_t step_from_elsewhere_ = -1;
  nlohmann::json init_from_;  // where the weights of step 0 are from; null if they were drawn
};

}  // namespace mpt
