// The program that tests of transports run as ranks: one that makes given calls, or fails on
// purpose.
//
//   rank_calls mpi|gloo cases PIECE_BYTES                  prints the transport, then a line per
//                                                          case: its name, then the hashes of the
//                                                          results of all ranks
//   rank_calls mpi|gloo throw|exit|kill|sleep|leave RANK   that rank does so in the middle of its
//                                                          calls
//   rank_calls mpi|gloo abort RANK                         fails while another thread is in a call
//   rank_calls launch N ...                                starts N ranks of this program itself
//   rank_calls run N NODES NODE PROGRAM ...                starts N ranks of PROGRAM
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "core/io/hash.h"
#include "ranks/collective_cases.h"
#include "ranks/gloo/gloo_transport.h"
#include "ranks/launch_environment.h"
#include "ranks/local_launch.h"
#include "ranks/make_transport.h"
#include "ranks/mpi/mpi_transport.h"

namespace mpt {
namespace {

using Maker = std::unique_ptr<Transport> (*)(std::chrono::milliseconds timeout,
                                             int64_t piece_bytes);

std::unique_ptr<Transport> over_mpi([[maybe_unused]] std::chrono::milliseconds timeout,
                                    [[maybe_unused]] int64_t piece_bytes) {
#ifdef MPT_WITH_MPI
  const LaunchEnvironment environment = launch_environment();
  return make_mpi_transport({environment.rank, environment.size, timeout, piece_bytes});
#else
  throw error("built without MPI");
#endif
}

std::unique_ptr<Transport> over_gloo([[maybe_unused]] std::chrono::milliseconds timeout,
                                     [[maybe_unused]] int64_t piece_bytes) {
#ifdef MPT_WITH_GLOO
  const LaunchEnvironment environment = launch_environment();
  Rendezvous rendezvous(rendezvous_options(environment, timeout));
  return make_gloo_transport({environment.rank, environment.size, timeout, piece_bytes},
                             rendezvous);
#else
  throw error("built without Gloo");
#endif
}

void print_cases(Maker make, int64_t piece_bytes) {
  const auto ranks = make(std::chrono::seconds(30), piece_bytes);
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
void abort_during_a_call(Maker make, int64_t culprit) {
  const auto ranks = make(std::chrono::minutes(5), int64_t{1} << 20);
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
  throw error("the main thread fails");
}

void run_until_failure(Maker make, const std::string& how, int64_t culprit) {
  const auto ranks = make(std::chrono::milliseconds(1500), int64_t{1} << 20);
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
    throw;
  }
}

int launch(const std::vector<std::string>& words) {
  const auto number = [&](size_t word) { return std::atoll(words.at(word).c_str()); };
  LocalLaunch launch{
      .ranks = number(1), .to_notice = std::chrono::seconds(1), .to_end = std::chrono::seconds(1)};
  if (words.at(0) == "launch") {
    launch.program = std::filesystem::read_symlink("/proc/self/exe").string();
    launch.arguments = {words.begin() + 2, words.end()};
  } else {
    launch.nodes = number(2);
    launch.node = number(3);
    launch.program = words.at(4);
    launch.arguments = {words.begin() + 5, words.end()};
  }
  if (launch.nodes > 1) {
    launch.master_address = "first.machine";
    launch.master_port = 29500;
    launch.run_id = "seven";
  }
  const LaunchEnd end = launch_locally(launch, 75);
  fmt::print(stderr, "{}\n", end.failure);
  return end.exit_code;
}

int run(const std::vector<std::string>& words) {
  if (words.at(0) == "launch" || words.at(0) == "run") return launch(words);
  const Maker make = words.at(0) == "mpi" ? &over_mpi : &over_gloo;
  const std::string& verb = words.at(1);
  const int64_t number = std::atoll(words.at(2).c_str());
  if (verb == "cases")
    print_cases(make, number);
  else if (verb == "abort")
    abort_during_a_call(make, number);
  else
    run_until_failure(make, verb, number);
  return 0;
}

}  // namespace
}  // namespace mpt

int main(int argc, char** argv) {
  try {
    return mpt::run({argv + 1, argv + argc});
  } catch (const std::exception& caught) {
    fmt::print(stderr, "{}\n", caught.what());
    return 1;
  }
}
