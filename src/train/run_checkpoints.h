// The checkpoints of a run while it trains: saving them in parallel with its steps, the command
// after each save, and the checkpoint to roll back to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/checkpoint_saver.h"
#include "checkpoint/checkpoint_store.h"
#include "config/run_config.h"
#include "ranks/communicator.h"
#include "train/after_save_command.h"

namespace mpt {

// Calls are collective unless they say otherwise.
class RunCheckpoints {
 public:
  // All but `config` must outlive this object.
  RunCheckpoints(const RunConfig& config, Device& device, FileSystem& fs, Communicator& ranks,
                 int64_t total_steps);

  // Starts to save a step, once an earlier save is finished.
  void begin(StateToSave what);
  // Reports a save that has been committed and polls the command. `step` is the run's.
  void poll(int64_t step);
  // Waits for a save.
  void finish_save(int64_t step);
  // Waits for the command, at the end of the run.
  void finish_command();
  // Blocks until a save has read what an update changes. Not collective.
  void before_update() { saver_.before_update(); }

  // Step of the newest checkpoint, committed or in progress; -1: none. Not collective.
  [[nodiscard]] int64_t last_step() const { return last_step_; }
  // The newest one committed or loaded; "": none.
  [[nodiscard]] const std::string& last() const { return last_; }
  [[nodiscard]] bool busy() const { return saver_.busy(); }

  // Call when the run has the state of this checkpoint. Not collective.
  void loaded(const std::string& checkpoint, int64_t step);
  // Call for the first one loaded, which may be another run's: checkpoints in this run's directory
  // up to its step then do not belong to this run. Not collective.
  void began_from(const std::string& checkpoint, int64_t step);
  // Returns the newest good checkpoint of this run.
  [[nodiscard]] std::optional<std::string> to_roll_back_to();

 private:
  void report(const std::optional<SaveReport>& report, int64_t step);

  Communicator& ranks_;
  std::string directory_;
  bool has_command_;
  int64_t total_steps_;
  CheckpointStore store_;
  CheckpointSaver saver_;
  AfterSaveCommand command_;  // only on rank 0
  int64_t last_step_ = -1;
  std::string last_;
  std::string from_elsewhere_;  // the checkpoint that was resumed, if it is another run's
  int64_t step_from_elsewhere_ = -1;
};

}  // namespace mpt
