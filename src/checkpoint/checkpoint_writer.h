// Writes one checkpoint file on its own thread, directly from device memory, while the device
// computes.
//
//   writer.begin({.path = ..., .resting = weights and states, .changing = scales});
//   ... forward, backward ...
//   writer.wait_until_read();      before the resting tensors change
//   ... update ...
//   const CheckpointFile file = writer.wait();
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_state.h"
#include "core/io/file_system.h"
#include "core/named_tensor.h"
#include "device/device.h"
#include "ranks/communicator.h"

namespace mpt {

struct FileToWrite {
  std::string directory;  // exists
  std::string name;
  std::vector<TensorPart> resting{};   // must not change until wait_until_read() has returned
  std::vector<TensorPart> changing{};  // copied before begin() returns: for small tensors
};

class CheckpointWriter {
 public:
  // Both must outlive this object.
  CheckpointWriter(FileSystem& fs, Device& device);
  // Abandons an unfinished write.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Writes the tensors as left by all work enqueued so far. One file at a time. If only one thread
  // can read the device, the file has been written when this returns.
  void begin(FileToWrite file);
  // Returns once the resting tensors may change, or writing has failed (reported by wait()).
  void wait_until_read();
  // Whether wait() would return or throw without blocking.
  [[nodiscard]] bool done() const { return wait_for({}); }
  // Like done(), after waiting up to `time`.
  bool wait_for(std::chrono::milliseconds time) const;
  // Waits and returns the synced file. Rethrows any failure to write; an incomplete file is
  // removed.
  CheckpointFile wait();
  // Stops at the next block and removes the file.
  void give_up() noexcept;

  [[nodiscard]] bool busy() const { return file_.valid(); }
  [[nodiscard]] int64_t bytes_to_write() const { return to_write_; }  // tensor bytes
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

}  // namespace mpt
