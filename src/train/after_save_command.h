// Runs a command after each committed checkpoint, such as one that copies it elsewhere.
//
// The command is run by /bin/sh in the run's working directory, in parallel with training, with
//
//   MPRETRAIN_CHECKPOINT  the checkpoint's directory
//   MPRETRAIN_STEP        its step
//
// and without standard input; its output is appended to a log. One runs at a time. If several
// checkpoints are committed meanwhile, the newest is next and the others are skipped with a
// warning. The command has its own process group, so that a Ctrl-C meant for the run does not reach
// it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace mpt {

class AfterSaveCommand {
 public:
  // `command`: "" for none. `log`: a file.
  AfterSaveCommand(std::string command, std::string log);
  // Leaves a running command running.
  ~AfterSaveCommand() = default;
  AfterSaveCommand(const AfterSaveCommand&) = delete;
  AfterSaveCommand& operator=(const AfterSaveCommand&) = delete;

  // Starts the command for this checkpoint, or queues it as the next. Never waits.
  void committed(int64_t step, const std::string& checkpoint);
  // Reports a command that has ended and starts the next. Never waits.
  void poll();
  // Waits until all have ended, at most this long. Returns whether they have; if so, the number of
  // failures has been logged.
  bool finish(std::chrono::milliseconds at_most = std::chrono::milliseconds::max());
  // Steps whose checkpoints must be kept: those of the running command and of the next.
  [[nodiscard]] std::vector<int64_t> steps_in_use() const;

 private:
  struct Checkpoint {
    int64_t step;
    std::string path;
  };
  void start(Checkpoint checkpoint);
  void ended(int status);

  std::string command_, log_;
  pid_t process_ = 0;  // 0: none
  Checkpoint running_{};
  std::optional<Checkpoint> next_{};
  std::chrono::steady_clock::time_point begun_{};
  int64_t started_ = 0, failed_ = 0;
  bool told_to_wait_ = false;
};

}  // namespace mpt
