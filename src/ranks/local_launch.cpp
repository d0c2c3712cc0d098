#include "ranks/local_launch.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <optional>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/check.h"
#include "core/io/child_environment.h"
#include "device/processors.h"
#include "ranks/tcp_socket.h"

namespace mpt {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kSecondSignalTime = std::chrono::seconds(1);

// Passed on to the ranks. They are in a process group of their own, so that each gets a signal
// from the terminal once.
constexpr std::array kPassedOn{SIGINT,  SIGTERM, SIGHUP,  SIGQUIT, SIGUSR1,
                               SIGUSR2, SIGXCPU, SIGTSTP, SIGCONT};

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kPassedOn) sigaddset(&set, signal);
  sigaddset(&set, SIGCHLD);
  return set;
}

// Blocks the signals that wait_for_signal() takes, and restores the mask.
class BlockedSignals {
 public:
  BlockedSignals() {
    const sigset_t set = watched_signals();
    ::sigprocmask(SIG_BLOCK, &set, &before_);
  }
  ~BlockedSignals() { restore(); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  void restore() const { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

// Returns the next signal, nullopt at the deadline.
std::optional<int> wait_for_signal(std::optional<Clock::time_point> deadline) {
  const sigset_t set = watched_signals();
  siginfo_t info{};
  for (;;) {
    int signal = 0;
    if (deadline) {
      const int left = milliseconds_left(*deadline);
      const timespec time{.tv_sec = left / 1000, .tv_nsec = left % 1000 * 1'000'000L};
      signal = ::sigtimedwait(&set, &info, &time);
    } else {
      signal = ::sigwaitinfo(&set, &info);
    }
    if (signal > 0) return signal;
    if (errno != EINTR) return std::nullopt;
  }
}

struct Rank {
  int64_t rank;
  pid_t process;
  bool running = true;
};

class Ranks {
 public:
  Ranks(const LocalLaunch& launch, int stopped) : launch_(launch), stopped_(stopped) {}

  LaunchEnd run() {
    start();
    while (running() > 0) {
      const std::optional<int> signal = wait_for_signal(deadline_);
      if (!signal)
        press();
      else if (*signal == SIGCHLD)
        reap();
      else
        pass_on(*signal);
    }
    if (end_.exit_code == 0 && any_stopped_) end_.exit_code = stopped_;
    return end_;
  }

 private:
  [[nodiscard]] int64_t running() const { return std::ranges::count(ranks_, true, &Rank::running); }

  [[nodiscard]] std::vector<int64_t> running_ranks() const {
    std::vector<int64_t> all;
    for (const Rank& rank : ranks_)
      if (rank.running) all.push_back(rank.rank);
    return all;
  }

  void start() {
    const int port = launch_.master_port != 0 ? launch_.master_port : free_port();
    const std::string id = launch_.nodes > 1 ? "of " + launch_.run_id
                                             : fmt::format("{}.{}", ::getpid(), ::time(nullptr));
    for (int64_t local = 0; local < launch_.ranks; ++local) start(local, port, id);
  }

  void start(int64_t local, int port, const std::string& id) {
    const int64_t rank = launch_.node * launch_.ranks + local;
    std::vector<std::string> texts = environment_of(local, port, id), words = launch_.arguments;
    words.insert(words.begin(), launch_.program);
    const std::vector<char*> environment = pointers_to(texts), arguments = pointers_to(words);
    const pid_t launcher = ::getpid(), group = ranks_.empty() ? 0 : ranks_.front().process;
    const pid_t child = ::fork();
    if (child < 0) {
      signal_all(SIGKILL);
      throw error("cannot start rank {}: {}", rank, std::strerror(errno));
    }
    if (child == 0) become_rank(arguments.data(), environment.data(), launcher, group);
    ::setpgid(child, group);  // in parent and child, so it is set whichever runs first
    ranks_.push_back({rank, child});
  }

  // Between fork and exec: only calls that are safe there.
  [[noreturn]] void become_rank(char* const* arguments, char* const* environment, pid_t launcher,
                                pid_t group) const {
    ::setpgid(0, group);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != launcher) ::_exit(1);  // it ended before the call above
    blocked_.restore();
    ::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);  // not the terminal, as a background group
    ::execve(launch_.program.c_str(), arguments, environment);
    ::_exit(127);
  }

  [[nodiscard]] std::vector<std::string> environment_of(int64_t local, int port,
                                                        const std::string& id) const {
    std::map<std::string, std::string> ours{
        {"RANK", std::to_string(launch_.node * launch_.ranks + local)},
        {"WORLD_SIZE", std::to_string(launch_.nodes * launch_.ranks)},
        {"LOCAL_RANK", std::to_string(local)},
        {"LOCAL_WORLD_SIZE", std::to_string(launch_.ranks)},
        {"MASTER_ADDR", launch_.nodes > 1 ? launch_.master_address : "127.0.0.1"},
        {"MPT_MASTER_PORT", std::to_string(port)},
        {"MPT_LAUNCH_ID", id}};
    if (std::getenv("OMP_NUM_THREADS") == nullptr)
      ours["OMP_NUM_THREADS"] =
          std::to_string(std::max<int64_t>(1, available_processors() / launch_.ranks));
    return environment_with(ours, std::array<std::string_view, 1>{"MASTER_PORT"});
  }

  void signal_all(int signal) const {
    for (const Rank& rank : ranks_)
      if (rank.running) ::kill(rank.process, signal);
  }

  // SIGTSTP stops the ranks and then this process, as if it were one. Ranks end at their second
  // SIGINT or SIGTERM; one that hangs is killed.
  void pass_on(int signal) {
    signal_all(signal == SIGTSTP ? SIGSTOP : signal);
    if (signal == SIGTSTP) ::raise(SIGSTOP);
    if ((signal == SIGINT || signal == SIGTERM) && ++ends_ > 1) {
      pressed_ = true;
      deadline_ = Clock::now() + kSecondSignalTime;
    }
  }

  void reap() {
    for (Rank& rank : ranks_) {
      int status = 0;
      if (!rank.running || ::waitpid(rank.process, &status, WNOHANG) != rank.process) continue;
      rank.running = false;
      record(rank, status);
    }
  }

  void record(const Rank& rank, int status) {
    const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (code == stopped_) any_stopped_ = true;
    if (code == 0 || code == stopped_ || end_.exit_code != 0) return;
    const std::string how = WIFSIGNALED(status)
                                ? fmt::format("was ended by signal {} ({})", WTERMSIG(status),
                                              ::strsignal(WTERMSIG(status)))
                                : fmt::format("ended with exit code {}", code);
    end_ = {code, fmt::format("rank {} of {} (process {}) {}", rank.rank,
                              launch_.nodes * launch_.ranks, rank.process, how)};
    deadline_ = Clock::now() + launch_.to_notice;
  }

  // The others have had the time to notice.
  void press() {
    spdlog::warn("launch: rank {} still runs; {}", fmt::join(running_ranks(), ", "),
                 pressed_
                     ? "killing it"
                     : fmt::format("ending it, by SIGKILL in {} s", launch_.to_end.count() / 1000));
    signal_all(pressed_ ? SIGKILL : SIGTERM);
    pressed_ = true;
    deadline_ = Clock::now() + launch_.to_end;
  }

  const LocalLaunch& launch_;
  int stopped_;
  BlockedSignals blocked_;
  std::vector<Rank> ranks_;
  LaunchEnd end_;
  bool any_stopped_ = false, pressed_ = false;
  int ends_ = 0;                               // SIGINT and SIGTERM passed on
  std::optional<Clock::time_point> deadline_;  // once a rank has failed
};

}  // namespace

LaunchEnd launch_locally(const LocalLaunch& launch, int stopped) {
  if (::access(launch.program.c_str(), X_OK) != 0)
    throw error("{}: cannot be started: {}", launch.program, std::strerror(errno));
  return Ranks(launch, stopped).run();
}

}  // namespace mpt
