// Runs a command after each committed checkpoint, such as one that copies it elsewhere.
//
// The command is run by /bin/sh in the working directory of the run, beside training, with
//
//   MPRETRAIN_CHECKPOINT  the checkpoint's directory
//   MPRETRAIN_STEP        its step
//
// and without standard input; what it prints is appended to a log. One runs at a time. Of the
// checkpoints that are committed meanwhile, the newest is next, and the others are passed over,
// with a warning. It has a process group of its own, so that a Ctrl-C meant for the run does not
// reach it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace mpt {

class CommitCommand {
 public:
  // `command`: "" for none. `log`: a file.
  CommitCommand(std::string command, std::string log);
  // Leaves a command that runs to itself.
  ~CommitCommand() = default;
  CommitCommand(const CommitCommand&) = delete;
  CommitCommand& operator=(const CommitCommand&) = delete;

  // Starts the command for this checkpoint, or puts it next. Never waits.
  void committed(int64_t step, const std::string& checkpoint);
  // Tells of a command that has ended, and starts the next. Never waits.
  void poll();
  // Waits until all have ended, at most this long. Returns whether they have, and then has told how
  // many failed.
  bool finish(std::chrono::milliseconds at_most = std::chrono::milliseconds::max());
  // The steps whose checkpoints must stay: of the command that runs, and of the next.
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
