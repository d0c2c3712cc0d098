// Writes one file of a checkpoint on a thread of its own, straight from the device's memory, while the device
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

#include "core/file_system.h"
#include "core/named_tensor.h"
#include "device/device.h"
#include "train/checkpoint_files.h"

namespace mpt {

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

}  // namespace mpt
