// Runs the program rank_calls (tests/ranks/rank_calls.cpp) as several ranks over a transport.
//
//   MPT_SKIP_WITHOUT_TRANSPORT("gloo");
//   const ProgramResult result = run_rank_calls("gloo", 3, {"cases", "1000"});
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "support/ranks_program.h"

namespace mpt::test {

#define MPT_SKIP_WITHOUT_TRANSPORT(name) \
  if (std::string(name) == "mpi") {      \
    MPT_SKIP_WITHOUT_MPIRUN();           \
  } else {                               \
    MPT_SKIP_WITHOUT_GLOO();             \
  }

// MPI's ranks are started by mpirun, Gloo's by launch_locally().
inline ProgramResult run_rank_calls(const std::string& transport, int ranks,
                                    std::vector<std::string> args, RunOptions options = {}) {
  options.program = MPT_RANK_CALLS;
  args.insert(args.begin(), transport);
  if (transport == "mpi") return run_ranks_program(ranks, std::move(args), std::move(options));
  args.insert(args.begin(), {"launch", std::to_string(ranks)});
  return run_program(std::move(args), options);
}

}  // namespace mpt::test
