// The program as several processes: the same bits as ranks that are threads, and an exit in bounded time,
// with the cause, if ranks do not fit together, hang or fail.
#include "support/ranks_program.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <future>
#include <map>

#include <gtest/gtest.h>

#include "checkpoint/checkpoint_store.h"
#include "config/run_paths.h"
#include "ranks/tcp_socket.h"
#include "support/find_processes.h"
#include "support/ranks_run.h"
#include "support/temp_directory.h"

namespace mpt::test {
namespace {

class RanksProgram : public testing::Test {
 protected:
  RanksProgram() {
    write_tiny_data(directory_.path());
    write_file_atomically(posix_file_system(), directory_ / "config.json",
                          bytes_of(tiny_config_text(directory_.path(), "run")));
  }

  [[nodiscard]] std::vector<std::string> arguments(
      const std::vector<std::string>& overrides) const {
    std::vector<std::string> all{"--config", directory_ / "config.json", "--resume", "auto"};
    for (const std::string& text : overrides) all.insert(all.end(), {"--set", text});
    return all;
  }
  // Waits until the run has made a step; its ranks, by process number.
  std::vector<pid_t> ranks_of_a_run_that_steps(std::future<ProgramResult>& running,
                                               size_t count) const {
    const std::string metrics = directory_ / "runs/run/metrics.jsonl";
    while (!posix_file_system().exists(metrics) || posix_file_system().file_size(metrics) == 0)
      check(running.wait_for(std::chrono::milliseconds(20)) == std::future_status::timeout,
            "the run ended");
    std::vector<pid_t> ranks;
    for (const pid_t process : processes_that_say(directory_ / "config.json", "mpretrain"))
      if (command_line_of(fmt::format("/proc/{}", process)).find("launch") == std::string::npos)
        ranks.push_back(process);
    check(ranks.size() == count, "{} ranks run", ranks.size());
    std::ranges::sort(ranks);
    return ranks;
  }
  [[nodiscard]] pid_t launcher_of(const std::vector<pid_t>& ranks) const {
    for (const pid_t process : processes_that_say(directory_ / "config.json", "mpretrain"))
      if (std::ranges::find(ranks, process) == ranks.end()) return process;
    throw LogicError("no launcher runs");
  }
  [[nodiscard]] bool says(const ProgramResult& result, const std::string& text) const {
    return result.err.find(text) != std::string::npos;
  }

  TempDirectory directory_;
};

class RanksBits : public RanksProgram {
 protected:
  using Start = ProgramResult (*)(int, std::vector<std::string>, RunOptions);
  void expect_the_bits_of_threads(Start start) const {
    for (const int ranks : {1, 2, 3}) {
      const auto overrides = [&](const std::string& name) {
        return std::vector<std::string>{fmt::format("name={}{}", name, ranks),
                                        "train.steps=6",
                                        "checkpoint.every_steps=3",
                                        "device.threads=1",
                                        "precision.weights=nvfp4",
                                        "precision.compute=fp8",
                                        "distributed.check_every_steps=1"};
      };
      const ProgramResult result = start(ranks, arguments(overrides("processes")), {});
      ASSERT_EQ(result.exit_code, 0) << result.err;
      const RunConfig processes = tiny_config(directory_.path(), "x", overrides("processes")),
                      threads = tiny_config(directory_.path(), "x", overrides("threads"));
      train_on(ranks, threads);
      EXPECT_TRUE(state_at(processes, 6) == state_at(threads, 6));
      EXPECT_EQ(metrics_of(processes), metrics_of(threads));
    }
  }
};

TEST_F(RanksBits, OverMpiAreThoseOfThreads) {
  MPT_SKIP_WITHOUT_MPIRUN();
  expect_the_bits_of_threads(&run_ranks_program);
}
TEST_F(RanksBits, OverGlooAreThoseOfThreads) {
  MPT_SKIP_WITHOUT_GLOO();
  expect_the_bits_of_threads(&run_launched);
}

TEST_F(RanksBits, UnderTorchrunAreThoseOfThreads) {
  MPT_SKIP_WITHOUT_GLOO();
  MPT_SKIP_WITHOUT_TORCHRUN();
  expect_the_bits_of_threads(&run_under_torchrun);
}

// torchrun starts all ranks again when one is killed, and they resume to the same end.
TEST_F(RanksBits, AreThoseOfAnUninterruptedRunAfterTorchrunStartsAgain) {
  MPT_SKIP_WITHOUT_GLOO();
  MPT_SKIP_WITHOUT_TORCHRUN();
  const std::vector<std::string> overrides{"train.steps=3000", "checkpoint.every_steps=50",
                                           "device.threads=1"};
  auto running =
      std::async(std::launch::async, [&] { return run_under_torchrun(2, arguments(overrides)); });
  // Kills a rank when the run has reached a third, and two thirds.
  const RunConfig run = tiny_config(directory_.path(), "run", overrides);
  for (const int64_t step : {1000, 2000}) {
    const auto is_there = [&] {
      const CheckpointStore store(posix_file_system(), checkpoint_directory(run), {});
      return !store.list().empty() && store.list().back().step >= step;
    };
    while (!is_there())
      ASSERT_EQ(running.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
    const std::vector<pid_t> ranks = processes_that_say(directory_ / "config.json", "mpretrain");
    ASSERT_EQ(ranks.size(), 2u);
    ::kill(ranks[size_t(step / 1000 - 1)], SIGKILL);
  }
  const ProgramResult result = running.get();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(says(result, "continuing from")) << result.err;
  std::vector<std::string> whole = overrides;
  whole.push_back("name=whole");
  train_on(2, tiny_config(directory_.path(), "whole", whole));
  EXPECT_TRUE(state_at(run, 3000) ==
              state_at(tiny_config(directory_.path(), "whole", whole), 3000));
}

// mpirun's variables without its library: the ranks meet by the name of its job.
TEST_F(RanksProgram, OfMpirunTrainOverGlooToo) {
  MPT_SKIP_WITHOUT_MPIRUN();
  MPT_SKIP_WITHOUT_GLOO();
  const ProgramResult result = run_ranks_program(
      2, arguments({"train.steps=2", "device.threads=1", "distributed.transport=gloo"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(says(result, "Gloo, 2 ranks")) << result.err;
}

// --- mpretrain launch ----------------------------------------------------------------------------

// What is wrong for all ranks is said once.
TEST_F(RanksProgram, LaunchRefusesBeforeItStartsRanks) {
  const auto wrong = [&](const std::vector<std::string>& all, int exit_code,
                         const std::string& complaint) {
    const ProgramResult result = run_launched(3, all);
    EXPECT_EQ(result.exit_code, exit_code);
    const size_t first = result.err.find(complaint);
    EXPECT_NE(first, std::string::npos) << result.err;
    EXPECT_EQ(result.err.find(complaint, first + 1), std::string::npos) << result.err;
    EXPECT_FALSE(says(result, "launch: rank")) << result.err;
  };
  wrong(arguments({"train.steps=many"}), 1, "expected an integer");
  wrong({"--config", "none.json"}, 1, "none.json: no such config");
  wrong({"--confog", "none.json"}, 2, "--confog");
  wrong({"plan", "--config", "none.json"}, 2, "plan");
}

// What only ranks can find, all of them: said by the first.
TEST_F(RanksProgram, LaunchSaysOnceWhatAllRanksFind) {
  MPT_SKIP_WITHOUT_GLOO();
  for (const char* wrong : {"data.train=none.bin", "distributed.gradient_reduce=bf16"}) {
    const ProgramResult result = run_launched(
        3,
        arguments({wrong, "device.threads=1", "data.validation=none.bin", "eval.every_steps=1"}));
    EXPECT_EQ(result.exit_code, 1);
    const size_t first = result.err.find("none.bin");
    EXPECT_NE(first, std::string::npos) << result.err;
    EXPECT_EQ(result.err.find("error: rank", result.err.find("error: rank") + 1), std::string::npos)
        << result.err;
  }
}

// As on machines without a common file system: refused before the first step.
TEST_F(RanksProgram, RefusesADirectoryThatRanksDoNotShare) {
  MPT_SKIP_WITHOUT_GLOO();
  const std::string script = "mkdir -p \"$0/of_$RANK\" && cd \"$0/of_$RANK\" && exec \"$@\"";
  std::vector<std::string> all{"-c", script, directory_.path(), program_to_test()};
  const std::vector<std::string> given = arguments({"device.threads=1", "output_dir=runs"});
  all.insert(all.end(), given.begin(), given.end());
  const int port = free_port();
  const auto start = [&](int rank) {
    return std::async(std::launch::async, [&, rank] {
      std::map<std::string, std::string> environment = ranks_environment();
      environment.merge(
          std::map<std::string, std::string>{{"RANK", std::to_string(rank)},
                                             {"WORLD_SIZE", "2"},
                                             {"MASTER_ADDR", "127.0.0.1"},
                                             {"MPT_MASTER_PORT", std::to_string(port)}});
      return run_program(all, {.env = environment, .program = "/bin/sh"});
    });
  };
  auto first = start(0), second = start(1);
  for (auto* one : {&first, &second}) {
    const ProgramResult result = one->get();
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_TRUE(says(result, "of_1/runs/run is not the directory that rank 0 writes to"))
        << result.err;
  }
}

// A rank that a signal ends: the code is 128 + its number, the others end, and say which it was.
TEST_F(RanksProgram, LaunchNamesTheRankThatWasKilled) {
  MPT_SKIP_WITHOUT_GLOO();
  const std::vector<std::string> run =
      arguments({"train.steps=1000000", "checkpoint.every_steps=0", "device.threads=1"});
  auto running =
      std::async(std::launch::async, [&] { return run_launched(3, run, {.timeout_s = 50}); });
  const std::vector<pid_t> ranks = ranks_of_a_run_that_steps(running, 3);
  ::kill(ranks[1], SIGKILL);
  const ProgramResult result = running.get();
  EXPECT_EQ(result.exit_code, 128 + SIGKILL) << result.err;
  EXPECT_TRUE(says(result, fmt::format("(process {}) was ended by signal 9", ranks[1])))
      << result.err;
  EXPECT_TRUE(says(result, "disconnected")) << result.err;
  EXPECT_TRUE(processes_that_say(directory_ / "config.json", "mpretrain").empty());
}

// A signal to the launcher stops all ranks, which save: status 75. So does one to a rank.
TEST_F(RanksProgram, LaunchPassesASignalOnAndTheStatusBack) {
  MPT_SKIP_WITHOUT_GLOO();
  for (const bool to_launcher : {true, false}) {
    const std::vector<std::string> run =
        arguments({"train.steps=1000000", "checkpoint.every_steps=0", "device.threads=1"});
    auto running =
        std::async(std::launch::async, [&] { return run_launched(2, run, {.timeout_s = 50}); });
    const std::vector<pid_t> ranks = ranks_of_a_run_that_steps(running, 2);
    ::kill(to_launcher ? launcher_of(ranks) : ranks[0], SIGTERM);
    const ProgramResult result = running.get();
    EXPECT_EQ(result.exit_code, 75) << result.err;
    EXPECT_TRUE(says(result, "stopped by a signal")) << result.err;
    std::filesystem::remove_all(directory_ / "runs");
  }
}

// A launcher that cannot clean up takes its ranks with it all the same.
TEST_F(RanksProgram, RanksEndWithALauncherThatWasKilled) {
  MPT_SKIP_WITHOUT_GLOO();
  const std::vector<std::string> run =
      arguments({"train.steps=1000000", "checkpoint.every_steps=0", "device.threads=1"});
  auto running =
      std::async(std::launch::async, [&] { return run_launched(2, run, {.timeout_s = 50}); });
  const std::vector<pid_t> ranks = ranks_of_a_run_that_steps(running, 2);
  ::kill(launcher_of(ranks), SIGKILL);
  const ProgramResult result = running.get();
  EXPECT_FALSE(result.timed_out);
  EXPECT_TRUE(says(result, "stopped by a signal")) << result.err;
}

// --- ranks that do not fit together, or fail -----------------------------------------------------

TEST_F(RanksProgram, RefusesRanksThatDiffer) {
  MPT_SKIP_WITHOUT_MPIRUN();
  const std::map<std::string, std::string> differences{
      {"seed=8", "a different configuration from rank 0"},
      {"data.train=" + directory_ / "train_0.bin", "a different configuration from rank 0"}};
  for (const auto& [key, what] : differences) {
    std::vector<std::string> all = arguments({"device.threads=1"});
    all.insert(all.end(), {":", "-np", "1", program_to_test()});
    for (const std::string& text : arguments({"device.threads=1", key})) all.push_back(text);
    const ProgramResult result = run_ranks_program(1, all);
    EXPECT_NE(result.exit_code, 0);
    EXPECT_TRUE(says(result, what)) << result.err;
  }
  EXPECT_FALSE(posix_file_system().exists(directory_ / "runs/run/metrics.jsonl"));
}

// Ranks see different bytes under the same names, as on machines whose copies of the data differ.
TEST_F(RanksProgram, RefusesOtherData) {
  MPT_SKIP_WITHOUT_MPIRUN();
  const auto in = [&](const std::string& name) {
    const std::string copy = directory_ / name;
    posix_file_system().create_directories(copy);
    write_random_shard(copy + "/train.bin", 500, name == "a" ? 1 : 2);
    return copy;
  };
  const std::vector<std::string> common = arguments({"device.threads=1", "data.train=train.bin"});
  std::vector<std::string> all{"-np", "1", "-wdir", in("a"), program_to_test()};
  all.insert(all.end(), common.begin(), common.end());
  all.insert(all.end(), {":", "-np", "1", "-wdir", in("b"), program_to_test()});
  all.insert(all.end(), common.begin(), common.end());
  RunOptions options{.program = MPT_MPIEXEC};
  for (const auto& [name, value] : ranks_environment()) options.env.try_emplace(name, value);
  const ProgramResult result = run_program(all, options);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_TRUE(says(result, "a different set of training data from rank 0")) << result.err;
}

TEST_F(RanksProgram, HalfAnEnvironmentIsAnError) {
  const ProgramResult result = run_program(arguments({}), {.env = {{"RANK", "1"}}});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(says(result, "WORLD_SIZE")) << result.err;
}

// The others wait for rank 0, which waits for a command.
TEST_F(RanksProgram, ALongCommandAfterACheckpointIsNoLostRank) {
  MPT_SKIP_WITHOUT_MPIRUN();
  const ProgramResult result = run_ranks_program(
      2, arguments({"train.steps=2", "checkpoint.every_steps=0", "device.threads=1",
                    "distributed.timeout_seconds=2", "checkpoint.on_commit=sleep 5; echo done"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(posix_file_system().read_file(directory_ / "runs/run/on_commit.log"), "done\n");
}

// A rank that is stopped for good counts as lost.
TEST_F(RanksProgram, ARankThatHangsStopsAll) {
  MPT_SKIP_WITHOUT_MPIRUN();
  const auto start = std::chrono::steady_clock::now();
  const std::vector<std::string> run =
      arguments({"train.steps=1000000", "checkpoint.every_steps=0", "device.threads=1",
                 "distributed.timeout_seconds=2"});
  auto running =
      std::async(std::launch::async, [&] { return run_ranks_program(2, run, {.timeout_s = 50}); });
  ::kill(ranks_of_a_run_that_steps(running, 2)[1], SIGSTOP);
  const ProgramResult result = running.get();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_FALSE(result.timed_out);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_TRUE(says(result, "error: rank")) << result.err;
  EXPECT_LT(seconds, 40);
}

}  // namespace
}  // namespace mpt::test
