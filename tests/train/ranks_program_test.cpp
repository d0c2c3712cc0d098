// The program under mpirun: the same bits as ranks that are threads, and an exit in bounded time,
// with the cause, if ranks do not fit together, hang or fail.
#include "support/ranks_program.h"

#include <csignal>
#include <future>
#include <map>

#include <gtest/gtest.h>

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
  [[nodiscard]] bool says(const ProgramResult& result, const std::string& text) const {
    return result.err.find(text) != std::string::npos;
  }

  TempDirectory directory_;
};

TEST_F(RanksProgram, GivesTheBitsOfThreads) {
  MPT_SKIP_WITHOUT_MPIRUN();
  for (const int ranks : {2, 3}) {
    const auto overrides = [&](const std::string& name) {
      return std::vector<std::string>{fmt::format("name={}{}", name, ranks),
                                      "train.steps=6",
                                      "checkpoint.every_steps=3",
                                      "device.threads=1",
                                      "precision.weights=nvfp4",
                                      "precision.compute=fp8",
                                      "distributed.check_every_steps=1"};
    };
    const ProgramResult result = run_ranks_program(ranks, arguments(overrides("processes")));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const RunConfig processes = tiny_config(directory_.path(), "x", overrides("processes")),
                    threads = tiny_config(directory_.path(), "x", overrides("threads"));
    train_on(ranks, threads);
    EXPECT_TRUE(state_at(processes, 6) == state_at(threads, 6));
    EXPECT_EQ(metrics_of(processes), metrics_of(threads));
  }
}

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
  const std::string metrics = directory_ / "runs/run/metrics.jsonl";
  while (!posix_file_system().exists(metrics) || posix_file_system().file_size(metrics) == 0) {
    ASSERT_EQ(running.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout)
        << running.get().err;
  }
  const std::vector<pid_t> ranks = processes_that_say(directory_ / "config.json", "mpretrain");
  ASSERT_EQ(ranks.size(), 2u);
  ::kill(ranks[1], SIGSTOP);
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
