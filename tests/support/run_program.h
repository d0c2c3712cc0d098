// Runs the built program like a user and captures its output.
//
//   const ProgramResult result = run_program({"schema"});
//   EXPECT_EQ(result.exit_code, 0) << result.err;
#pragma once

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/check.h"
#include "core/io/child_environment.h"

namespace mpt::test {

struct ProgramResult {
  int exit_code = -1;      // -1 if a signal ended it
  bool signalled = false;  // also by the time limit
  int signal = 0;
  bool timed_out = false;
  std::string out, err;
};

// The built program, or the one MPT_PROGRAM names, such as an installed one.
inline std::string program_to_test() {
  const char* other = std::getenv("MPT_PROGRAM");
  return other == nullptr ? MPT_PROGRAM : other;
}

struct RunOptions {
  std::string cwd{};  // "": the directory of this process
  double timeout_s = 60;
  std::map<std::string, std::string> env{};  // added to the environment of this process
  std::string program = program_to_test();
};

namespace program_detail {

struct Pipe {
  int read_end = -1, write_end = -1;
  Pipe() {
    int ends[2];
    check(::pipe2(ends, O_CLOEXEC) == 0, "no pipe: errno {}", errno);
    read_end = ends[0];
    write_end = ends[1];
  }
};

// In the child, after fork: async-signal-safe calls only.
[[noreturn]] inline void become(const std::vector<char*>& arguments,
                                const std::vector<char*>& environment, const std::string& cwd,
                                const Pipe& out, const Pipe& err) {
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(out.write_end, STDOUT_FILENO);
  ::dup2(err.write_end, STDERR_FILENO);
  ::setpgid(0, 0);
  if (cwd.empty() || ::chdir(cwd.c_str()) == 0)
    ::execve(arguments[0], arguments.data(), environment.data());
  ::_exit(127);
}

// Reads both pipes until they are closed; false on timeout.
inline bool collect(int out, int err, double timeout_s, ProgramResult& result) {
  using Clock = std::chrono::steady_clock;
  const auto limit = Clock::now() + std::chrono::duration<double>(timeout_s);
  pollfd ends[2]{{.fd = out, .events = POLLIN, .revents = 0},
                 {.fd = err, .events = POLLIN, .revents = 0}};
  std::string* texts[2]{&result.out, &result.err};
  while (ends[0].fd >= 0 || ends[1].fd >= 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(limit - Clock::now()).count();
    if (left <= 0) return false;
    if (::poll(ends, 2, int(left)) < 0) continue;
    for (int i = 0; i < 2; ++i) {
      if (ends[i].fd < 0 || ends[i].revents == 0) continue;
      char buffer[65536];
      const ssize_t count = ::read(ends[i].fd, buffer, sizeof buffer);
      if (count > 0) texts[i]->append(buffer, size_t(count));
      if (count == 0) ends[i].fd = -1;
    }
  }
  return true;
}

}  // namespace program_detail

// Standard input is empty. On timeout, kills the program and everything it started.
inline ProgramResult run_program(std::vector<std::string> args, const RunOptions& options = {}) {
  using namespace program_detail;
  args.insert(args.begin(), options.program);
  std::vector<std::string> environment = environment_with(options.env);
  const std::vector<char*> argv = pointers_to(args), envp = pointers_to(environment);
  const Pipe out, err;
  std::fflush(nullptr);
  const pid_t child = ::fork();
  check(child >= 0, "no process: errno {}", errno);
  if (child == 0) become(argv, envp, options.cwd, out, err);
  ::setpgid(child, child);  // in parent and child, so it is set whichever runs first
  ::close(out.write_end);
  ::close(err.write_end);
  ProgramResult result;
  result.timed_out = !collect(out.read_end, err.read_end, options.timeout_s, result);
  if (result.timed_out) ::kill(-child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  ::close(out.read_end);
  ::close(err.read_end);
  result.signalled = WIFSIGNALED(status);
  if (result.signalled) result.signal = WTERMSIG(status);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  return result;
}

}  // namespace mpt::test
