// The program that MPI tests run under mpirun: a rank that makes given calls, or fails on purpose.
//
//   mpi_ranks cases PIECE_BYTES                  prints a line per case: its name, then the
//                                                hashes of the results of all ranks
//   mpi_ranks throw|exit|kill|sleep|leave RANK   that rank does so in the middle of its calls
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "core/io/hash.h"
#include "ranks/collective_cases.h"
#include "ranks/launch_environment.h"
#include "ranks/mpi/mpi_transport.h"

namespace mpt {
namespace {

std::unique_ptr<Transport> ranks_of_environment(std::chrono::milliseconds timeout,
                                                int64_t piece_bytes) {
  const LaunchEnvironment environment = launch_environment();
  return make_mpi_transport({.rank = environment.rank,
                             .size = environment.size,
                             .timeout = timeout,
                             .piece_bytes = piece_bytes});
}

void print_cases(int64_t piece_bytes) {
  const auto ranks = ranks_of_environment(std::chrono::seconds(30), piece_bytes);
  if (ranks->rank() == 0) fmt::print("{}\n", ranks->name());
  for (const auto& [name, run] : test::collective_cases()) {
    const std::string mine = hash_bytes(run(*ranks));
    std::string all(mine.size() * size_t(ranks->size()), ' ');
    ranks->gather_host(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
    if (ranks->rank() == 0) fmt::print("{}: {}\n", name, all);
  }
}

void fail(const std::string& how) {
  if (how == "throw") throw error("this rank gives up");
  if (how == "exit") std::_Exit(3);
  if (how == "kill") ::kill(::getpid(), SIGKILL);
  if (how == "sleep") std::this_thread::sleep_for(std::chrono::minutes(1));
}

// The rank's main thread fails while another of its threads waits for a rank that never arrives.
void abort_beside_a_call(int64_t culprit) {
  const auto ranks = ranks_of_environment(std::chrono::minutes(5), int64_t{1} << 20);
  if (ranks->rank() != culprit) std::this_thread::sleep_for(std::chrono::minutes(1));
  std::thread waiting([&] {
    try {
      ranks->barrier();
    } catch (const std::exception& caught) {
      fmt::print(stderr, "{}\n", caught.what());
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  ranks->abort("the main thread fails");
  waiting.join();
}

void run_until_failure(const std::string& how, int64_t culprit) {
  const auto ranks = ranks_of_environment(std::chrono::milliseconds(1500), int64_t{1} << 20);
  try {
    for (int call = 0; call < 10; ++call) {
      if (call == 5 && ranks->rank() == culprit) {
        if (how == "leave") return;
        fail(how);
      }
      ranks->barrier();
    }
  } catch (const std::exception& caught) {
    fmt::print(stderr, "rank {}: {}\n", ranks->rank(), caught.what());
    ranks->abort(caught.what());
  }
}

}  // namespace
}  // namespace mpt

int main(int argc, char** argv) {
  try {
    const std::string verb = argc > 2 ? argv[1] : "";
    if (verb == "cases")
      mpt::print_cases(std::atoll(argv[2]));
    else if (verb == "abort")
      mpt::abort_beside_a_call(std::atoll(argv[2]));
    else
      mpt::run_until_failure(verb, std::atoll(argv[2]));
    return 0;
  } catch (const std::exception& caught) {
    fmt::print(stderr, "{}\n", caught.what());
    return 1;
  }
}
