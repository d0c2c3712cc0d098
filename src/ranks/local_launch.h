// Starts a program as several ranks on this machine, and waits for all of them. On several
// machines, each runs it, and the ranks meet at the first.
//
// Each rank is given its number by the variables that launch_environment() reads, and its share of
// the cores by OMP_NUM_THREADS unless that is set. Signals to the launcher
// are passed on to the ranks. If one fails, the others are ended. If the launcher is killed, the
// ranks receive SIGTERM.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace mpt {

struct LocalLaunch {
  int64_t ranks = 1;             // on this machine, and on each of the others
  int64_t nodes = 1, node = 0;   // machines, and which of them this is
  std::string master_address{};  // with several machines: the first
  int master_port = 0;           // where rank 0 listens; 0, with one machine: a free port
  std::string run_id{};          // with several machines: the same on all, another for each run
  std::string program{};         // path of the executable
  std::vector<std::string> arguments{};
  // After a rank has failed: time for the others to notice it, then after SIGTERM before SIGKILL.
  std::chrono::milliseconds to_notice = std::chrono::seconds(5);
  std::chrono::milliseconds to_end = std::chrono::seconds(10);
};

// How the ranks ended: the exit code of the first that failed, 128 plus the number of the signal if
// one ended it, or 0. A rank that ends with `stopped` has not failed; the code is `stopped` if no
// other failed.
struct LaunchEnd {
  int exit_code = 0;
  std::string failure{};  // "rank 1 of 3 (process 4711) was ended by signal 9 (Killed)"; else empty
};

// Throws Error if the program cannot be started. Call in a process with one thread.
LaunchEnd launch_locally(const LocalLaunch& launch, int stopped);

}  // namespace mpt
