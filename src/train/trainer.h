// The training loop: batches in, weights out, exactly resumable.
//
// The state of a run is the step, the cursor of the data, the count of skipped updates and the named tensors;
// the next step is a function of these and the config alone, and so, but for the order of sums, is the number
// of ranks that make it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "checkpoint/checkpoint_saver.h"
#include "comm/communicator.h"
#include "config/run_config.h"
#include "config/run_inputs.h"
#include "core/io/file_system.h"
#include "data/dataloader.h"
#include "inference/evaluate.h"
#include "train/run_logger.h"
#include "train/stop_signal.h"
#include "train/training_model.h"

namespace mpt {

class Trainer {
 public:
  // Opens the data and takes all memory. Weights are not set: initialize() or resume() comes next. Of several
  // ranks each has a trainer, and `ranks`, which outlives it; all calls are collective then.
  Trainer(const RunConfig& config, Device& device, FileSystem& fs,
          Communicator& ranks = Communicator::single());
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  void initialize();
  // Continues from a checkpoint, of any number of ranks. Throws Error if it belongs to another model, data or
  // seed; logs every other key of the config that has changed since.
  void resume(const std::string& checkpoint);

  // Trains to the last step, or to a signal that any rank gets (stop_signal.h); either way the state of the
  // last finished step is saved. Returns true if the run is complete.
  bool run();

  // Trains so many steps more, of which nothing is written. Not beside run().
  void run_unrecorded(int64_t steps);

  [[nodiscard]] int64_t current_step() const { return step_; }
  // The checkpoint of the current step after run(), be it that it was saved or loaded; "" if there is none.
  [[nodiscard]] const std::string& last_checkpoint() const { return last_checkpoint_; }
  [[nodiscard]] const SequenceSource& training_data() const { return *train_data_; }
  [[nodiscard]] const SequenceSource* validation_data() const { return validation_data_.get(); }
  [[nodiscard]] const MemoryUse& memory() const { return allocator_->use(); }

 private:
  // Null on all ranks but 0.
  [[nodiscard]] std::unique_ptr<RunLogger> open_logger();
  // Nothing if a signal came before the update: the step is left, and all is as before it.
  std::optional<StepRecord> step(RunLogger* logger);
  Batch next_batch();
  [[nodiscard]] bool enqueue(StepRecord& record, RunLogger* logger);
  [[nodiscard]] bool try_gradients(RunLogger* logger);
  [[nodiscard]] StopPoint stop_point() const;
  void stage(const Batch& batch);
  [[nodiscard]] StepScalars scalars_of(const StepRecord& record) const;
  void update_with_statistics(StepRecord& record, StepScalars scalars);
  [[nodiscard]] bool counts_updates() const;
  void warn_of_frozen_scales();
  void check_replicas();
  void evaluate_into(StepRecord& record);
  void handle_nonfinite(const StepRecord& record, RunLogger* logger);
  void roll_back(const StepRecord& record, RunLogger* logger);
  void save(RunLogger* logger);
  void report_save(const std::optional<SaveReport>& report) const;
  struct StepStatus;
  void exchange_status(StepRecord& record);
  [[nodiscard]] bool due(int64_t every_steps) const;
  [[nodiscard]] TrainState state() const;
  void load(const std::string& checkpoint);

  RunConfig config_;
  Device& device_;
  FileSystem& fs_;
  Communicator& ranks_;
  BatchPlan batch_;
  int64_t total_steps_;
  std::shared_ptr<const SequenceSource> train_data_, validation_data_;
  std::unique_ptr<Allocator> allocator_;
  TrainingModel model_;
  DataLoader loader_;
  CheckpointStore checkpoints_;
  CheckpointSaver saver_;
  TrainingStep work_;
  int64_t step_ = 0;             // optimizer steps done
  int64_t skipped_ = 0;          // of them without an update
  int64_t tokens_ = 0;           // predicted so far
  int64_t rollbacks_ = 0;        // since the last checkpoint that was saved
  int64_t frozen_ = 0;           // updates of FP8 scales without effect that were warned of
  bool stopping_ = false;        // a signal came to one of the ranks
  double seconds_ = 0;           // that the last step took, on the slowest rank
  int64_t last_saved_ = -1;      // step of the newest checkpoint of this process, committed or on its way
  std::string last_checkpoint_;  // where that is
};

}  // namespace mpt
