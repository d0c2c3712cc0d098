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
// A rank's file is written by its own thread from the device's memory (CheckpointWriter); when the files
// of all are durable, rank 0 commits them on a thread as well. What is committed is whole; until then the
// checkpoint before it is the newest. If any rank fails, poll() or finish() throws on all of them, the
// directory that was being written is removed and nothing committed is touched.
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

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_store.h"
#include "comm/communicator.h"
#include "core/io/file_system.h"
#include "core/tensor.h"
#include "device/device.h"

namespace mpt {

// Writes one file of a checkpoint on a thread of its own, straight from the device's memory, while the device
// computes.
//
//   writer.begin({.path = ..., .resting = weights and states, .changing = scales});
//   ... forward, backward ...
//   writer.wait_until_read();      before the resting tensors change
//   ... update ...
//   const CheckpointFile file = writer.wait();

struct FileToWrite {
  std::string directory;  // exists
  std::string name;
  std::vector<TensorPart> resting{};   // stay as they are until wait_until_read() has returned
  std::vector<TensorPart> changing{};  // copied before begin() returns: meant for small ones
};

class CheckpointWriter {
 public:
  // Both outlive this.
  CheckpointWriter(FileSystem& fs, Device& device);
  // Gives up what is not written yet.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // What the device was given so far is what is written. One file at a time. Where the device can be read by
  // one thread only, the file is written when this returns.
  void begin(FileToWrite file);
  // Returns when the resting tensors may change, or writing has failed; of which wait() tells.
  void wait_until_read();
  // Whether wait() returns or throws at once.
  [[nodiscard]] bool done() const { return wait_for({}); }
  // The same, at most that much later.
  bool wait_for(std::chrono::milliseconds time) const;
  // The file, synced. Throws what writing it threw; a file that is not whole is removed.
  CheckpointFile wait();
  // Stops at the next block and removes the file.
  void give_up() noexcept;

  [[nodiscard]] bool busy() const { return file_.valid(); }
  [[nodiscard]] int64_t bytes_to_write() const { return to_write_; }  // of tensors
  [[nodiscard]] int64_t bytes_written() const { return written_.load(); }

 private:
  struct Job;
  CheckpointFile write(Job& job);
  void write_parts(Job& job, class SafetensorsWriter& out);

  FileSystem& fs_;
  Device& device_;
  std::unique_ptr<DeviceReader> reader_;
  std::future<CheckpointFile> file_;
  std::future<void> read_;
  std::atomic<int64_t> written_ = 0;
  std::atomic<bool> giving_up_ = false;
  int64_t to_write_ = 0;
};

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
