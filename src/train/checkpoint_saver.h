// Saves of a run by all its ranks, beside training.
//
//   saver.begin({...});                              all ranks: where a save is due; the state is as it is
//   now
//   ... forward and backward of the next step ...
//   saver.before_update();                           before weights or optimizer states change
//   ... update ...
//   if (auto report = saver.poll()) ...              all ranks, once a step: committed
//   saver.finish();                                  all ranks: at the end, and before another begin()
//
// A rank's file is written by its own thread from the device's memory (checkpoint_writer.h); when the files
// of all are durable, rank 0 commits them on a thread as well. What is committed is whole; until then the
// checkpoint before it is the newest. If any rank fails, poll() or finish() throws on all of them, the
// directory that was being written is removed and nothing committed is touched.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "train/checkpoint.h"
#include "train/checkpoint_writer.h"

namespace mpt {

// Together the ranks give every element of every tensor once.
struct StateToSave {
  TrainState state;                    // of rank 0 counts
  std::vector<TensorPart> resting{};   // change in updates only
  std::vector<TensorPart> changing{};  // small; change in forward or backward: copied at once
};

struct SaveReport {
  int64_t step = 0;
  int64_t bytes = 0;          // of all ranks' files
  double seconds = 0;         // from begin() until it was found committed
  double seconds_paused = 0;  // of them training stood still, on the rank where it did longest

  [[nodiscard]] std::string text() const;  // "1.25 GiB in 2.1s (0.64 GB/s), training paused 0.012 s"
};

class CheckpointSaver {
 public:
  // All outlive this. `ranks` is used within the collective calls only.
  CheckpointSaver(CheckpointStore& store, Device& device, Communicator& ranks = Communicator::single());
  // Gives up a save that is not being committed yet.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Collective; not while one is on its way.
  void begin(StateToSave what);
  // Blocks until what changes in updates has been read. Not collective.
  void before_update();
  // Collective; returns at once where there is nothing on its way. The save that was found committed.
  std::optional<SaveReport> poll();
  // Collective: waits for the save on its way, showing progress.
  std::optional<SaveReport> finish();

  // Whether a save is on its way: the same on all ranks.
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
  std::optional<CheckpointFile> file_;  // of this rank, written
  bool exchanged_ = false;              // all ranks' files are known, and rank 0 commits
  std::future<void> commit_;
  bool committed_ = false;
  std::string failure_;     // of this rank
  std::exception_ptr bug_;  // where it is no Error
  SaveReport report_;
  Clock::time_point begun_{};
};

}  // namespace mpt
