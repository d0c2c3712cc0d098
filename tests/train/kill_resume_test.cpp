// A run killed repeatedly, at any moment, ends with the same bytes as an uninterrupted run.
#include <chrono>

#include <gtest/gtest.h>

#include "config/run_paths.h"
#include "support/run_program.h"
#include "support/temp_directory.h"
#include "support/tiny_run.h"

namespace mpt::test {
namespace {

constexpr int kKills = 20;

std::vector<std::string> train_arguments(const TempDirectory& directory, const std::string& name) {
  return {"--config", directory / "config.json", "--set", "name=" + name, "--resume", "auto"};
}

TEST(KillResume, TwentyKillsChangeNothing) {
  const TempDirectory directory;
  write_tiny_data(directory.path());
  write_file_atomically(posix_file_system(), directory / "config.json",
                        bytes_of(tiny_config_text(directory.path(), "whole")));
  const auto start = std::chrono::steady_clock::now();
  const ProgramResult whole = run_program(train_arguments(directory, "whole"));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const RunConfig whole_config = tiny_config(directory.path(), "whole");
  const std::string last = tensors_at(whole_config, kTinySteps), metrics = metrics_of(whole_config);

  Draws draws(11);
  int kills = 0;
  for (int run = 0; kills < kKills; ++run) {
    const std::string name = fmt::format("killed{}", run);
    const int before = kills;
    // A run is killed at most six times, so that it ends even on a machine that has become slow.
    while (kills < before + 6) {
      const double limit = draws.uniform(0.0, 1.1 * seconds);
      const ProgramResult part =
          run_program(train_arguments(directory, name), {.timeout_s = limit});
      if (!part.signalled) {
        ASSERT_EQ(part.exit_code, 0) << part.err;
        break;
      }
      ++kills;
    }
    const RunConfig config = tiny_config(directory.path(), name);
    const auto newest =
        CheckpointStore(posix_file_system(), checkpoint_directory(config), {}).latest_good();
    const ProgramResult rest = run_program(train_arguments(directory, name));
    ASSERT_EQ(rest.exit_code, 0) << rest.err;
    if (newest) {
      EXPECT_NE(rest.err.find("continuing from " + *newest), std::string::npos) << rest.err;
    }
    ASSERT_TRUE(tensors_at(config, kTinySteps) == last) << name;
    ASSERT_EQ(metrics_of(config), metrics) << name;
  }
}

TEST(KillResume, ATerminatedRunSavesAndSaysSo) {
  const TempDirectory directory;
  write_tiny_data(directory.path());
  write_file_atomically(posix_file_system(), directory / "config.json",
                        bytes_of(tiny_config_text(directory.path(), "run")));
  const std::vector<std::string> arguments{"--config", directory / "config.json",
                                           "--set",    "train.steps=1000000",
                                           "--set",    "checkpoint.every_steps=0"};
  const std::string script =
      "\"$0\" \"$@\" & child=$!; while ! grep -q '\"step\":3,' \"" + directory.path() +
      "/runs/run/metrics.jsonl\" 2>/dev/null; do sleep 0.01; done; kill -TERM $child; wait $child";
  std::vector<std::string> shell{"-c", script, MPT_PROGRAM};
  shell.insert(shell.end(), arguments.begin(), arguments.end());
  const ProgramResult result = run_program(shell, {.program = "/bin/sh"});
  EXPECT_EQ(result.exit_code, 75) << result.err;
  EXPECT_NE(result.err.find("stopped by a signal"), std::string::npos) << result.err;
  const CheckpointStore store(posix_file_system(), directory / "runs/run/checkpoints", {});
  EXPECT_TRUE(store.latest_good().has_value());
}

}  // namespace
}  // namespace mpt::test
