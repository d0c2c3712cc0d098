// Runs a built program as several ranks and captures its output: under mpirun, or the program under
// its own `launch`, over Gloo.
//
//   MPT_SKIP_WITHOUT_MPIRUN();
//   const ProgramResult result = run_ranks_program(2, {"--config", path});
//   MPT_SKIP_WITHOUT_GLOO();
//   const ProgramResult result = run_launched(2, {"--config", path});
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/run_program.h"

#ifndef MPT_MPIEXEC
#define MPT_MPIEXEC ""
#endif

#define MPT_SKIP_WITHOUT_MPIRUN()       \
  if (std::string(MPT_MPIEXEC).empty()) \
  GTEST_SKIP() << "built without MPI: install libopenmpi-dev and openmpi-bin for this test"

#ifdef MPT_WITH_GLOO
#define MPT_SKIP_WITHOUT_GLOO()
#else
#define MPT_SKIP_WITHOUT_GLOO() \
  GTEST_SKIP() << "built without Gloo: install libgloo-dev for this test"
#endif

namespace mpt::test {

// Settings that Open MPI (4 and 5) needs where tests run: as root, in containers, with fewer cores
// than ranks. Ranks share cores, so each has one thread and is not bound.
inline std::map<std::string, std::string> ranks_environment() {
  return {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
          {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
          {"PRTE_ALLOW_RUN_AS_ROOT", "1"},
          {"PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
          {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
          {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"},
          {"OMPI_MCA_hwloc_base_binding_policy", "none"},
          {"PRTE_MCA_hwloc_default_binding_policy", "none"},
          {"OMPI_MCA_btl_vader_single_copy_mechanism",
           "none"},  // refused in containers, with a warning
          {"OMPI_MCA_btl_base_warn_component_unused", "0"},
          {"OMP_NUM_THREADS", "1"},
          {"OMP_WAIT_POLICY", "passive"},
          {"ASAN_OPTIONS", "detect_leaks=0"}};  // MPI keeps some memory until the process ends
}

// Every rank runs options.program; options.env is added to the environment of the ranks. The exit
// code is mpirun's: the first failed rank's, or 128 plus a signal.
inline ProgramResult run_ranks_program(int ranks, std::vector<std::string> args,
                                       RunOptions options = {}) {
  args.insert(args.begin(), {"-np", std::to_string(ranks), options.program});
  options.program = MPT_MPIEXEC;
  for (const auto& [name, value] : ranks_environment()) options.env.try_emplace(name, value);
  return run_program(std::move(args), options);
}

// The exit code is that of `mpretrain launch`.
inline ProgramResult run_launched(int ranks, std::vector<std::string> args,
                                  RunOptions options = {}) {
  args.insert(args.begin(), {"launch", "--ranks", std::to_string(ranks), "--"});
  for (const auto& [name, value] : ranks_environment()) options.env.try_emplace(name, value);
  return run_program(std::move(args), options);
}

// PyTorch's, which MPT_TORCHRUN names; empty without.
inline std::string torchrun() {
  const char* path = std::getenv("MPT_TORCHRUN");
  return path == nullptr ? "" : path;
}
#define MPT_SKIP_WITHOUT_TORCHRUN() \
  if (torchrun().empty()) GTEST_SKIP() << "MPT_TORCHRUN names no torchrun of PyTorch"

inline ProgramResult run_under_torchrun(int ranks, std::vector<std::string> args,
                                        RunOptions options = {}) {
  args.insert(args.begin(), {"--standalone", "--nproc-per-node", std::to_string(ranks),
                             "--max-restarts=3", "--no-python", options.program});
  options.program = torchrun();
  options.timeout_s = std::max(options.timeout_s, 200.0);  // it imports PyTorch
  for (const auto& [name, value] : ranks_environment()) options.env.try_emplace(name, value);
  return run_program(std::move(args), options);
}

}  // namespace mpt::test
