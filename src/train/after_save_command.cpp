#include "train/after_save_command.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <spawn.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/check.h"
#include "core/io/child_environment.h"
#include "core/progress.h"
#include "core/text/units.h"

namespace mpt {
namespace {

constexpr const char* kKey = "checkpoint.on_commit";

// Returns an errno, 0 if the shell has started.
int spawn_shell(const std::string& command, std::vector<std::string> environment,
                const std::string& log, pid_t& process) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  sigset_t ignored;  // by this program, which a shell cannot undo
  sigemptyset(&ignored);
  for (const int signal : {SIGPIPE, SIGXFSZ}) sigaddset(&ignored, signal);
  posix_spawnattr_setsigdefault(&attributes, &ignored);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::string shell = "/bin/sh", option = "-c", text = command;
  char* const arguments[] = {shell.data(), option.data(), text.data(), nullptr};
  const int problem = posix_spawn(&process, shell.c_str(), &files, &attributes, arguments,
                                  pointers_to(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return problem;
}

// Returns "" for success.
std::string failure_of(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was ended by signal {}", WTERMSIG(status));
  if (!WIFEXITED(status)) return "terminated abnormally";
  const int code = WEXITSTATUS(status);
  return code == 0 ? "" : fmt::format("failed with exit status {}", code);
}

}  // namespace

AfterSaveCommand::AfterSaveCommand(std::string command, std::string log)
    : command_(std::move(command)), log_(std::move(log)) {}

void AfterSaveCommand::committed(int64_t step, const std::string& checkpoint) {
  if (command_.empty()) return;
  poll();
  if (process_ == 0) return start({step, checkpoint});
  if (next_)
    spdlog::warn("{}: step {} is passed over, because that of step {} still runs", kKey,
                 next_->step, running_.step);
  next_ = Checkpoint{step, checkpoint};
}

void AfterSaveCommand::start(Checkpoint checkpoint) {
  const std::vector<std::string> environment =
      environment_with({{"MPRETRAIN_CHECKPOINT", checkpoint.path},
                        {"MPRETRAIN_STEP", std::to_string(checkpoint.step)}});
  running_ = std::move(checkpoint);
  begun_ = std::chrono::steady_clock::now();
  ++started_;
  const int problem = spawn_shell(command_, environment, log_, process_);
  if (problem == 0) return;
  process_ = 0;
  ++failed_;
  spdlog::warn("{} of step {} could not be started, with output to {}: {}", kKey, running_.step,
               log_, std::strerror(problem));
}

void AfterSaveCommand::poll() {
  int status = 0;
  while (process_ != 0) {
    const pid_t found = ::waitpid(process_, &status, WNOHANG);
    if (found == 0 || (found < 0 && errno == EINTR)) return;
    ended(found < 0 ? -1 : status);
    if (auto next = std::exchange(next_, std::nullopt)) start(std::move(*next));
  }
}

void AfterSaveCommand::ended(int status) {
  process_ = 0;
  const std::string failure =
      status < 0 ? "was taken by another part of the program" : failure_of(status);
  const double seconds = seconds_since(begun_);
  if (failure.empty())
    return spdlog::info("{} of step {}: done in {}", kKey, running_.step, format_duration(seconds));
  ++failed_;
  spdlog::warn("{} of step {} {} after {}; what it printed is in {}", kKey, running_.step, failure,
               format_duration(seconds), log_);
}

bool AfterSaveCommand::finish(std::chrono::milliseconds at_most) {
  constexpr std::chrono::milliseconds kPause{20};
  poll();
  if (process_ != 0 && !std::exchange(told_to_wait_, true))
    spdlog::info("waiting for {} of step {}", kKey, next_ ? next_->step : running_.step);
  for (auto waited = 0 * kPause; process_ != 0; poll(), waited += kPause) {
    if (waited >= at_most) return false;
    std::this_thread::sleep_for(kPause);
  }
  if (failed_ > 0)
    spdlog::warn("{} failed for {} of {} checkpoints; what it printed is in {}", kKey, failed_,
                 started_, log_);
  return true;
}

std::vector<int64_t> AfterSaveCommand::steps_in_use() const {
  std::vector<int64_t> steps;
  if (process_ != 0) steps.push_back(running_.step);
  if (next_) steps.push_back(next_->step);
  return steps;
}

}  // namespace mpt
