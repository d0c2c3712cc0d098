// Checkpoint saves by all ranks of a run, concurrent with training.
//
//   saver.begin({...});                    all ranks, when a save is due: saves the current state
//   ... forward and backward of the next step ...
//   saver.before_update();                 before weights or optimizer states change
//   ... update ...
//   if (auto report = saver.poll()) ...    all ranks, once a step: true when committed
//   saver.finish();                        all ranks, at the end and before another begin()
//
// Each rank writes its file on a thread, directly from device memory (CheckpointWriter). When all
// files are durable, rank 0 commits them, also on a thread. Until then the previous checkpoint is
// the newest. If any rank fails, poll() or finish() throws on all ranks and the staging directory
// is removed; committed checkpoints are not touched.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_state.h"
#include "checkpoint/checkpoint_store.h"
#include "checkpoint/checkpoint_writer.h"
#include "core/io/file_system.h"
#include "core/named_tensor.h"
#include "device/device.h"
#include "ranks/communicator.h"

namespace mpt {

// Together the ranks supply every element of every tensor exactly once.
struct StateToSave {
  TrainState state;                    // rank 0's is saved
  std::vector<TensorPart> resting{};   // change only in updates
  std::vector<TensorPart> changing{};  // small; change in forward or backward; copied by begin()
};

struct SaveReport {
  int64_t step = 0;
  int64_t bytes = 0;          // over all ranks' files
  double seconds = 0;         // from begin() until poll() saw the commit
  double seconds_paused = 0;  // training was blocked: maximum over ranks

  [[nodiscard]] std::string text()
      const;  // "1.25 GiB in 2.1s (0.64 GB/s), training paused 0.012 s"
};

class CheckpointSaver {
 public:
  // All must outlive this object. `ranks` is used only within the collective calls.
  CheckpointSaver(CheckpointStore& store, Device& device,
                  Communicator& ranks = Communicator::single());
  // Waits for a commit in progress; abandons a save that has not reached it.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Starts a save. Collective. Must not be called while busy().
  void begin(StateToSave what);
  // Blocks until the resting tensors have been read. Not collective.
  void before_update();
  // Advances the save; returns its report once committed. Collective; returns at once if not
  // busy().
  std::optional<SaveReport> poll();
  // Waits for the current save, showing progress. Collective.
  std::optional<SaveReport> finish();

  // Whether a save is in progress; the same on all ranks.
  [[nodiscard]] bool busy() const { return busy_; }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Stage : int64_t { kWriting, kWritten, kCommitted, kFailed };

  Stage advance();
  void note_failure();
  void wait_a_moment();
  void exchange_files();
  [[noreturn]] void fail();
  void end();

  CheckpointStore& store_;
  Communicator& ranks_;
  CheckpointWriter writer_;
  bool busy_ = false;
  TrainState state_;
  std::optional<CheckpointFile> file_;  // this rank's, once written
  bool exchanged_ = false;              // files were exchanged; rank 0 is committing
  std::future<void> commit_;
  bool committed_ = false;
  std::string failure_;     // this rank's
  std::exception_ptr bug_;  // set if the failure was not an Error
  SaveReport report_;
  Clock::time_point begun_{};
};

}  // namespace mpt
