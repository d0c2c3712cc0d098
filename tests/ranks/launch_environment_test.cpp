// Rank and number of ranks from the environment: set by launchers, inherited from another launcher,
// or incomplete.
#include "ranks/launch_environment.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "ranks/make_transport.h"
#include "support/expect_error.h"

namespace mpt {
namespace {

using Environment = std::map<std::string, std::string>;

LaunchEnvironment found_in(const Environment& environment) {
  return launch_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    return found == environment.end() ? std::nullopt : std::optional<std::string>(found->second);
  });
}

Environment with(Environment environment, const Environment& changes) {
  for (const auto& [name, value] : changes) environment[name] = value;
  return environment;
}
Environment without(Environment environment, const std::string& name) {
  environment.erase(name);
  return environment;
}

void expect_rank(const LaunchEnvironment& found, Launcher launcher,
                 const LaunchEnvironment& expected) {
  EXPECT_EQ(name_of(found.launcher), name_of(launcher));
  EXPECT_EQ(found.rank, expected.rank);
  EXPECT_EQ(found.size, expected.size);
  EXPECT_EQ(found.local_rank, expected.local_rank);
  EXPECT_EQ(found.local_size, expected.local_size);
}

const Environment kTorchrun{{"RANK", "5"},
                            {"WORLD_SIZE", "8"},
                            {"LOCAL_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "4"},
                            {"MASTER_ADDR", "gpu07"},
                            {"MASTER_PORT", "29500"},
                            {"TORCHELASTIC_RUN_ID", "job 12"},
                            {"TORCHELASTIC_RESTART_COUNT", "2"}};
const Environment kOpenMpi{{"OMPI_COMM_WORLD_RANK", "2"},
                           {"OMPI_COMM_WORLD_SIZE", "3"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                           {"PMIX_RANK", "2"}};
const Environment kSlurm{{"SLURM_JOB_ID", "4711"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_PROCID", "6"},
                         {"SLURM_NTASKS", "11"},
                         {"SLURM_STEP_NUM_TASKS", "11"},
                         {"SLURM_LOCALID", "2"},
                         {"SLURM_NODEID", "1"},
                         {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"},
                         {"SLURM_STEP_NODELIST", "gpu[07-08,12]"}};

TEST(LaunchEnvironment, NothingIsASingleProcess) {
  expect_rank(found_in({}), Launcher::kNone, {});
  expect_rank(found_in({{"RANK", ""}, {"WORLD_SIZE", ""}}), Launcher::kNone, {});
  EXPECT_EQ(description(found_in({})), "a single process");
}

TEST(LaunchEnvironment, Torchrun) {
  const LaunchEnvironment found = found_in(kTorchrun);
  expect_rank(found, Launcher::kTorchrun, {.rank = 5, .size = 8, .local_rank = 1, .local_size = 4});
  EXPECT_EQ(found.master_address, "gpu07");
  EXPECT_EQ(found.master_port, 29501);  // the agent listens at 29500
  EXPECT_EQ(found.run_id, "torchrun job 12 2");
  EXPECT_EQ(found_in(with(kTorchrun, {{"MPT_MASTER_PORT", "1234"}})).master_port, 1234);
  EXPECT_EQ(description(found), "rank 5 of 8 (torchrun, 1 of 4 on this machine)");
}

TEST(LaunchEnvironment, OneRankOfTorchrunNeedsNoAddress) {
  expect_rank(found_in({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), Launcher::kTorchrun, {});
}

TEST(LaunchEnvironment, EveryMpi) {
  expect_rank(found_in(kOpenMpi), Launcher::kMpi,
              {.rank = 2, .size = 3, .local_rank = 1, .local_size = 2});
  expect_rank(found_in({{"PMI_RANK", "1"},
                        {"PMI_SIZE", "4"},
                        {"MPI_LOCALRANKID", "1"},
                        {"MPI_LOCALNRANKS", "2"}}),
              Launcher::kMpi, {.rank = 1, .size = 4, .local_rank = 1, .local_size = 2});
  expect_rank(found_in({{"MV2_COMM_WORLD_RANK", "3"},
                        {"MV2_COMM_WORLD_SIZE", "4"},
                        {"MV2_COMM_WORLD_LOCAL_RANK", "0"},
                        {"MV2_COMM_WORLD_LOCAL_SIZE", "1"}}),
              Launcher::kMpi, {.rank = 3, .size = 4, .local_rank = 0, .local_size = 1});
}

TEST(LaunchEnvironment, MpiUnderSrun) {
  expect_rank(found_in(with(kSlurm, {{"PMIX_RANK", "6"}})), Launcher::kMpi,
              {.rank = 6, .size = 11, .local_rank = 2, .local_size = 4});
  expect_rank(found_in(with(kSlurm, {{"PMI_RANK", "6"}, {"PMI_SIZE", "11"}})), Launcher::kMpi,
              {.rank = 6, .size = 11, .local_rank = 2, .local_size = 4});
}

// A program built without MPI can still meet the others.
TEST(LaunchEnvironment, MpiUnderSrunKnowsAPlaceToMeet) {
  const LaunchEnvironment task = found_in(with(kSlurm, {{"PMIX_RANK", "6"}}));
  EXPECT_EQ(task.master_address, "gpu07");
  EXPECT_EQ(task.run_id, found_in(kSlurm).run_id);
  EXPECT_EQ(found_in(with(kSlurm, kOpenMpi)).master_address, "");
}

TEST(LaunchEnvironment, ATaskOfSrun) {
  const LaunchEnvironment found = found_in(kSlurm);
  expect_rank(found, Launcher::kSlurm, {.rank = 6, .size = 11, .local_rank = 2, .local_size = 4});
  EXPECT_EQ(found.master_address, "gpu07");
  EXPECT_EQ(found.run_id, "slurm 4711.0.0");
  EXPECT_GE(found.master_port, 20000);
  EXPECT_LT(found.master_port, 30000);
  EXPECT_NE(found.master_port, found_in(with(kSlurm, {{"SLURM_STEP_ID", "1"}})).master_port);
  EXPECT_NE(found.run_id, found_in(with(kSlurm, {{"SLURM_RESTART_COUNT", "1"}})).run_id);
  const LaunchEnvironment last =
      found_in(with(kSlurm, {{"SLURM_PROCID", "10"}, {"SLURM_NODEID", "2"}}));
  EXPECT_EQ(last.local_size, 3);
  const LaunchEnvironment given =
      found_in(with(kSlurm, {{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "4000"}}));
  EXPECT_EQ(given.master_address, "10.0.0.1");
  EXPECT_EQ(given.master_port, 4001);
}

TEST(LaunchEnvironment, MachineListsOfSlurm) {
  const auto first = [](const std::string& list) {
    return found_in(with(kSlurm, {{"SLURM_STEP_NODELIST", list}})).master_address;
  };
  EXPECT_EQ(first("node1"), "node1");
  EXPECT_EQ(first("node1,node2"), "node1");
  EXPECT_EQ(first("node[003-017]"), "node003");
  EXPECT_EQ(first("node[3,5],other"), "node3");
  EXPECT_EQ(first("rack[2-3]-ib"), "rack2-ib");
  EXPECT_EQ(first("rack[2-3]-ib,cpu1"), "rack2-ib");
}

TEST(LaunchEnvironment, AShellOfSlurmIsASingleProcess) {
  expect_rank(found_in(without(kSlurm, "SLURM_STEP_ID")), Launcher::kNone, {});  // sbatch
  expect_rank(found_in(with(kSlurm, {{"SLURM_STEP_ID", "4294967291"}})), Launcher::kNone,
              {});  // its batch step
  expect_rank(
      found_in(with(kSlurm,
                    {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_STEP_NUM_TASKS", "1"}})),
      Launcher::kNone, {});
}

TEST(LaunchEnvironment, TheNearestLauncherCounts) {
  const Environment torchrun_in_slurm = with(kSlurm, kTorchrun),
                    mpirun_in_slurm = with(kSlurm, kOpenMpi);
  expect_rank(found_in(torchrun_in_slurm), Launcher::kTorchrun,
              {.rank = 5, .size = 8, .local_rank = 1, .local_size = 4});
  expect_rank(found_in(mpirun_in_slurm), Launcher::kMpi,
              {.rank = 2, .size = 3, .local_rank = 1, .local_size = 2});
  expect_rank(found_in(with(kOpenMpi, kTorchrun)), Launcher::kTorchrun,
              {.rank = 5, .size = 8, .local_rank = 1, .local_size = 4});
}

TEST(LaunchEnvironment, AWrapperUnderMpirunMayRepeatItsRanks) {
  const Environment repeated = with(kOpenMpi, {{"RANK", "2"}, {"WORLD_SIZE", "3"}});
  expect_rank(found_in(repeated), Launcher::kMpi,
              {.rank = 2, .size = 3, .local_rank = 1, .local_size = 2});
  EXPECT_ERROR(found_in(with(repeated, {{"RANK", "1"}})), "RANK=1", "WORLD_SIZE=3", "rank 2 of 3");
}

// Kubernetes starts one process per machine and does not report local ranks.
TEST(LaunchEnvironment, ARankWithoutLocalOnesIsAloneOnItsMachine) {
  const LaunchEnvironment found =
      found_in(without(without(kTorchrun, "LOCAL_RANK"), "LOCAL_WORLD_SIZE"));
  EXPECT_EQ(found.rank, 5);
  EXPECT_EQ(found.size, 8);
  EXPECT_EQ(found.local_rank, 0);
  EXPECT_EQ(found.local_size, 1);
  EXPECT_FALSE(found.master_address.empty());
}

TEST(LaunchEnvironment, WhatIsHalfSetIsNamed) {
  EXPECT_ERROR(found_in(without(kTorchrun, "WORLD_SIZE")), "RANK=5", "WORLD_SIZE is not",
               "set both, or neither");
  EXPECT_ERROR(found_in(without(kTorchrun, "RANK")), "WORLD_SIZE=8", "RANK is not");
  EXPECT_ERROR(found_in(without(kTorchrun, "LOCAL_RANK")), "LOCAL_WORLD_SIZE=4",
               "LOCAL_RANK is not");
  EXPECT_ERROR(found_in(without(kTorchrun, "MASTER_ADDR")), "WORLD_SIZE=8", "MASTER_ADDR is not");
  EXPECT_ERROR(found_in(without(kTorchrun, "MASTER_PORT")), "WORLD_SIZE=8", "MASTER_PORT is not");
  EXPECT_ERROR(found_in({{"LOCAL_RANK", "0"}}), "LOCAL_RANK=0", "RANK and WORLD_SIZE are not");
  EXPECT_ERROR(found_in(without(kOpenMpi, "OMPI_COMM_WORLD_SIZE")), "OMPI_COMM_WORLD_RANK=2",
               "OMPI_COMM_WORLD_SIZE is not");
  EXPECT_ERROR(found_in(without(kSlurm, "SLURM_PROCID")), "SLURM_STEP_NUM_TASKS=11",
               "SLURM_PROCID is not");
  EXPECT_ERROR(found_in(without(kSlurm, "SLURM_STEP_NODELIST")), "SLURM_STEP_NUM_TASKS=11",
               "MASTER_ADDR", "SLURM_STEP_NODELIST");
}

TEST(LaunchEnvironment, WhatIsNoRankIsNamed) {
  EXPECT_ERROR(found_in(with(kTorchrun, {{"RANK", "8"}})), "RANK=8", "WORLD_SIZE=8",
               "less than the number");
  EXPECT_ERROR(found_in(with(kTorchrun, {{"RANK", "-1"}})), "RANK=-1", "whole number from 0");
  EXPECT_ERROR(found_in(with(kTorchrun, {{"RANK", "one"}})), "RANK=one", "whole number");
  EXPECT_ERROR(found_in(with(kTorchrun, {{"RANK", "1x"}})), "RANK=1x", "whole number");
  EXPECT_ERROR(found_in(with(kTorchrun, {{"WORLD_SIZE", "0"}})), "WORLD_SIZE=0", "from 1");
  EXPECT_ERROR(found_in(with(kTorchrun, {{"LOCAL_RANK", "4"}})), "LOCAL_RANK=4",
               "LOCAL_WORLD_SIZE=4");
  EXPECT_ERROR(found_in(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}})), "LOCAL_WORLD_SIZE=9",
               "WORLD_SIZE=8");
  EXPECT_ERROR(found_in(with(kTorchrun, {{"MASTER_PORT", "65535"}})), "MASTER_PORT=65535",
               "to 65534");
  EXPECT_ERROR(found_in(with(kTorchrun, {{"MPT_MASTER_PORT", "http"}})), "MPT_MASTER_PORT=http");
  EXPECT_ERROR(found_in(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "four"}})),
               "SLURM_STEP_TASKS_PER_NODE=four");
  EXPECT_ERROR(found_in(with(kSlurm, {{"SLURM_NODEID", "3"}})), "SLURM_STEP_TASKS_PER_NODE",
               "machine 3");
}

// --- the matching transport ----------------------------------------------------------------------

TEST(MakeTransport, OneRankNeedsNothing) {
  EXPECT_EQ(make_transport({}, {})->name(), "one rank");
  EXPECT_EQ(
      make_transport(found_in({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), {.kind = TransportKind::kMpi})
          ->size(),
      1);
}

TEST(MakeTransport, SaysWhatSeveralRanksNeed) {
  const auto made = [](const LaunchEnvironment& environment, TransportOptions options) {
    return make_transport(environment, options);
  };
  EXPECT_ERROR(made(found_in(kTorchrun), {.kind = TransportKind::kMpi}), "rank 5 of 8 (torchrun",
               "mpirun");
  EXPECT_ERROR(made(found_in(kTorchrun), {.kind = TransportKind::kNccl}), "GPUs only", "gloo");
  EXPECT_ERROR(made(found_in(kTorchrun), {.kind = TransportKind::kMpi, .stream = {Backend::kCuda}}),
               "host memory only", "nccl");
  EXPECT_ERROR(
      made(found_in(kTorchrun), {.kind = TransportKind::kGloo, .stream = {Backend::kCuda}}),
      "distributed.transport is gloo", "host memory only");
  if (transports_built().find("NCCL") == std::string::npos)
    EXPECT_ERROR(made(found_in(kTorchrun), {.stream = {Backend::kCuda}}), "built without NCCL",
                 "libnccl-dev");
  if (transports_built().find("MPI") == std::string::npos)
    EXPECT_ERROR(made(found_in(kOpenMpi), {.kind = TransportKind::kMpi}), "built without MPI",
                 "libopenmpi-dev");
  if (transports_built().find("Gloo") == std::string::npos)
    EXPECT_ERROR(made(found_in(kTorchrun), {}), "built without Gloo", "libgloo-dev");
}

TEST(LaunchEnvironment, OfLaunchWinsOverWhatStartedIt) {
  auto variables = with(kOpenMpi, {{"MPT_LAUNCH_ID", "12.34"},
                                   {"RANK", "1"},
                                   {"WORLD_SIZE", "2"},
                                   {"LOCAL_RANK", "1"},
                                   {"LOCAL_WORLD_SIZE", "2"},
                                   {"MASTER_ADDR", "127.0.0.1"},
                                   {"MPT_MASTER_PORT", "4000"}});
  const LaunchEnvironment found = found_in(variables);
  EXPECT_EQ(description(found), "rank 1 of 2 (launch, 1 of 2 on this machine)");
  EXPECT_EQ(found.master_port, 4000);
  EXPECT_EQ(found.run_id, "launch 12.34");
}

// For programs without MPI: mpirun names the job, and ranks on one machine meet there.
TEST(LaunchEnvironment, OfMpiSaysWhereToMeet) {
  const std::map<std::string, std::string> one_machine{{"OMPI_COMM_WORLD_RANK", "1"},
                                                       {"OMPI_COMM_WORLD_SIZE", "2"},
                                                       {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                                       {"PMIX_NAMESPACE", "1089601537"}};
  const LaunchEnvironment found = found_in(one_machine), again = found_in(one_machine);
  EXPECT_EQ(found.master_address, "127.0.0.1");
  EXPECT_GE(found.master_port, 20000);
  EXPECT_LT(found.master_port, 30000);
  EXPECT_EQ(found.master_port, again.master_port);
  EXPECT_EQ(found.run_id, "mpi 1089601537");
  const auto two_machines =
      with(one_machine, {{"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}});
  EXPECT_EQ(found_in(two_machines).master_address, "");
  EXPECT_ERROR(rendezvous_options(found_in(two_machines), std::chrono::seconds(1)),
               "set MASTER_ADDR", "MPT_MASTER_PORT");
  EXPECT_EQ(found_in(with(two_machines, {{"MASTER_ADDR", "node1"}})).master_address, "node1");
}

}  // namespace
}  // namespace mpt
