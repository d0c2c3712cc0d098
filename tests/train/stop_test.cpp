// A run stopped by a signal reacts at once, abandons the current step, saves the last finished one,
// exits with status 75, and resumes as if uninterrupted.
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "config/run_paths.h"
#include "support/find_processes.h"
#include "support/ranks_program.h"
#include "support/ranks_run.h"
#include "support/temp_directory.h"
#include "train/stop_signal.h"

namespace mpt::test {
namespace {

constexpr int kStopped = 75;

// Thousands of micro-batches, so that a signal sent when a step has begun arrives long before its
// end.
const std::vector<std::string> kLongSteps{"train.steps=3", "batch.tokens_per_step=48000",
                                          "checkpoint.every_steps=0", "eval.every_steps=0",
                                          "device.threads=1"};

// Ranks leave a step within a fifth of a second, in which others may finish.
const std::vector<std::string> kForRanks{"batch.tokens_per_step=96000"};

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

bool wait_for(const std::function<bool()>& condition) {
  for (int i = 0; i < 12000 && !condition(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return condition();
}

bool holds(const std::string& path, const std::string& text) {
  FileSystem& fs = posix_file_system();
  return fs.exists(path) && fs.read_file(path).find(text) != std::string::npos;
}

int64_t newest_checkpoint(const RunConfig& config) {
  const std::vector<CheckpointInfo> all =
      CheckpointStore(posix_file_system(), checkpoint_directory(config), {}).list();
  return all.empty() ? 0 : all.back().step;
}

class Stop : public testing::Test {
 protected:
  Stop() {
    write_tiny_data(directory_.path());
    write_file_atomically(posix_file_system(), directory_ / "config.json",
                          bytes_of(tiny_config_text(directory_.path(), "run")));
  }

  [[nodiscard]] RunConfig config(const std::string& name,
                                 const std::vector<std::string>& more = {}) const {
    return tiny_config(directory_.path(), name, kLongSteps + more);
  }
  [[nodiscard]] std::vector<std::string> arguments(const std::string& name,
                                                   const std::vector<std::string>& more = {},
                                                   const std::string& resume = "") const {
    std::vector<std::string> all{"--config", directory_ / "config.json", "--set", "name=" + name};
    for (const std::string& text : kLongSteps + more) all.insert(all.end(), {"--set", text});
    if (!resume.empty()) all.insert(all.end(), {"--resume", resume});
    return all;
  }
  // Processes of the running run, without mpirun; other tests may run at the same time.
  [[nodiscard]] std::vector<pid_t> processes() const {
    return processes_that_say(directory_ / "config.json", "mpretrain");
  }
  [[nodiscard]] bool has_done_a_step(const std::string& name) const {
    return holds(metrics_path(config(name)), "\"step\":1,");
  }
  // The final state and all metrics are those of an undisturbed run.
  void expect_undisturbed(const std::string& name, const std::vector<std::string>& more) const {
    EXPECT_TRUE(state_at(config(name, more), 3) == state_at(config("whole", more), 3));
    EXPECT_EQ(metrics_of(config(name, more)), metrics_of(config("whole", more)));
  }

  TempDirectory directory_;
};

// --- program -------------------------------------------------------------------------------------

TEST_F(Stop, LeavesTheStepSavesTheLastOneAndGoesOnToTheSameBits) {
  const std::vector<std::vector<std::string>> settings{
      {},
      {"precision.weights=block_fp8", "precision.compute=fp8", "precision.fp8_history=3",
       "precision.fp8_amax_update=microbatch", "precision.fp8_weight_recast=microbatch"},
      {"precision.weights=nvfp4", "precision.compute=fp8", "optimizer.rule=m_plus_adam",
       "optimizer.apollo_e=channel", "optimizer.apollo_e_rank=4", "optimizer.apollo_e_gap=1"}};
  for (const std::vector<std::string>& more : settings) {
    for (const auto* name : {"run", "whole"})
      posix_file_system().remove_tree(run_directory(config(name)));
    ASSERT_EQ(run_program(arguments("whole", more)).exit_code, 0);
    auto running =
        std::async(std::launch::async, [&] { return run_program(arguments("run", more)); });
    ASSERT_TRUE(wait_for([&] { return has_done_a_step("run"); })) << running.get().err;
    for (const pid_t process : processes()) ::kill(process, SIGINT);
    const ProgramResult stopped = running.get();
    EXPECT_EQ(stopped.exit_code, kStopped) << stopped.err;
    const size_t answer = stopped.err.find("mpretrain: stopping"),
                 end = stopped.err.find("run: stopped by a signal at step 1 of 3; saved in ");
    ASSERT_NE(end, std::string::npos) << stopped.err;
    EXPECT_LT(answer, end);
    EXPECT_NE(stopped.err.find("the same --config, the same --set and --resume latest", end),
              std::string::npos)
        << stopped.err;
    EXPECT_EQ(newest_checkpoint(config("run")), 1);
    const ProgramResult rest = run_program(arguments("run", more, "latest"));
    EXPECT_EQ(rest.exit_code, 0) << rest.err;
    expect_undisturbed("run", more);
  }
}

TEST_F(Stop, BeforeTheFirstStepLeavesARunThatStartsAnew) {
  auto running = std::async(std::launch::async, [&] { return run_program(arguments("run")); });
  ASSERT_TRUE(wait_for([&] { return posix_file_system().exists(metrics_path(config("run"))); }));
  std::this_thread::sleep_for(
      std::chrono::milliseconds(50));  // most likely in the step, in any case before it
  for (const pid_t process : processes()) ::kill(process, SIGTERM);
  const ProgramResult stopped = running.get();
  EXPECT_EQ(stopped.exit_code, kStopped) << stopped.err;
  EXPECT_NE(stopped.err.find("nothing is saved; the same command starts the run again"),
            std::string::npos)
      << stopped.err;
  EXPECT_EQ(newest_checkpoint(config("run")), 0);
  const ProgramResult anew = run_program(arguments("run", {"train.steps=1"}));
  EXPECT_EQ(anew.exit_code, 0) << anew.err;
  const ProgramResult third = run_program(arguments("run"));
  EXPECT_EQ(third.exit_code, 1) << "a run with a step is not written over";
}

// Both arrive while it is suspended, so that the second is pending before the first has any effect.
TEST_F(Stop, ASecondSignalEndsAtOnceAndLosesNothingThatIsSaved) {
  const std::vector<std::string> more{"checkpoint.every_steps=1"};
  ASSERT_EQ(run_program(arguments("whole", more)).exit_code, 0);
  auto running =
      std::async(std::launch::async, [&] { return run_program(arguments("run", more)); });
  ASSERT_TRUE(wait_for([&] { return has_done_a_step("run"); }));
  for (const pid_t process : processes())
    for (const int signal : {SIGSTOP, SIGINT, SIGTERM, SIGCONT}) ::kill(process, signal);
  const ProgramResult killed = running.get();
  EXPECT_TRUE(killed.signalled) << killed.exit_code << killed.err;
  EXPECT_TRUE(killed.signal == SIGINT || killed.signal == SIGTERM) << killed.signal;
  const std::string leftover = checkpoint_path(config("run"), 2) + ".tmp";
  posix_file_system().create_directories(leftover);  // as if during a save
  const ProgramResult rest = run_program(arguments("run", more, "auto"));
  EXPECT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_FALSE(posix_file_system().exists(leftover));
  expect_undisturbed("run", more);
}

// Notices of schedulers, of which several may arrive, and of a limit on processor time.
TEST_F(Stop, ANoticeNeverEndsARun) {
  for (const int notice : {SIGUSR1, SIGUSR2, SIGXCPU}) {
    posix_file_system().remove_tree(run_directory(config("run")));
    auto running = std::async(std::launch::async, [&] { return run_program(arguments("run")); });
    ASSERT_TRUE(wait_for([&] { return has_done_a_step("run"); }));
    for (const pid_t process : processes())
      for (const int signal : {SIGSTOP, notice, SIGTERM, SIGCONT, notice}) ::kill(process, signal);
    const ProgramResult stopped = running.get();
    EXPECT_EQ(stopped.exit_code, kStopped) << strsignal(notice) << stopped.err;
    EXPECT_GE(newest_checkpoint(config("run")), 1);
  }
}

TEST_F(Stop, AClosedTerminalSavesUnlessItIsIgnored) {
  auto running = std::async(std::launch::async, [&] { return run_program(arguments("run")); });
  ASSERT_TRUE(wait_for([&] { return has_done_a_step("run"); }));
  for (const pid_t process : processes())
    for (const int signal : {SIGHUP, SIGHUP}) ::kill(process, signal);
  const ProgramResult stopped = running.get();
  EXPECT_EQ(stopped.exit_code, kStopped) << stopped.err;
  EXPECT_GE(newest_checkpoint(config("run")), 1);
  std::signal(SIGHUP, SIG_IGN);
  {
    const StopSignal signals(StopSignal::Voice::kSilent);
    std::raise(SIGHUP);
    EXPECT_EQ(StopSignal::received(), 0);
  }
  EXPECT_EQ(std::signal(SIGHUP, SIG_DFL), SIG_IGN);
}

// The metrics are those of an undisturbed run, and the run is complete after the evaluation.
TEST_F(Stop, LeavesAnEvaluationToTheResumedRun) {
  write_random_shard(directory_ / "val_0.bin", 200'000, 4);
  for (const std::string phases :
       {"phases=[]",
        R"(phases=[{"until": 0.5}, {"until": 1, "precision": {"weights": "fp32"}}])"}) {
    const std::vector<std::string> more{"train.steps=2", "batch.tokens_per_step=96",
                                        "eval.every_steps=1", "eval.tokens=1000000", phases};
    for (const auto* name : {"run", "whole"})
      posix_file_system().remove_tree(run_directory(config(name)));
    ASSERT_EQ(run_program(arguments("whole", more)).exit_code, 0);
    auto running =
        std::async(std::launch::async, [&] { return run_program(arguments("run", more)); });
    ASSERT_TRUE(wait_for([&] { return posix_file_system().exists(metrics_path(config("run"))); }));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the step takes a few
    for (const pid_t process : processes()) ::kill(process, SIGTERM);
    const ProgramResult stopped = running.get();
    EXPECT_EQ(stopped.exit_code, kStopped) << stopped.err;
    EXPECT_NE(stopped.err.find("mpretrain: stopping; leaving this evaluation to the resumed run"),
              std::string::npos)
        << stopped.err;
    EXPECT_EQ(newest_checkpoint(config("run")), 1);
    EXPECT_FALSE(records_of(config("run")).at(1).contains("val_loss"));
    const ProgramResult rest = run_program(arguments("run", more, "latest"));
    EXPECT_EQ(rest.exit_code, 0) << rest.err;
    EXPECT_EQ(metrics_of(config("run", more)), metrics_of(config("whole", more)));
  }
}

// --- several ranks -------------------------------------------------------------------------------

bool is_first_rank(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/environ", process));
  const std::string all(std::istreambuf_iterator<char>(file), {});
  return all.find(std::string("OMPI_COMM_WORLD_RANK=0") + '\0') != std::string::npos;
}

// While one rank is suspended, the other waits for it in the middle of a step, and still answers.
TEST_F(Stop, RanksAnswerWhateverTheyWaitForAndStopAtTheSamePlace) {
  MPT_SKIP_WITHOUT_MPIRUN();
  ASSERT_EQ(run_ranks_program(2, arguments("whole", kForRanks)).exit_code, 0);
  const std::string said = directory_ / "said";
  auto running = std::async(std::launch::async, [&] {
    return run_ranks_program(
        2,
        std::vector<std::string>{"-c", "exec \"$0\" \"$@\" 2>>" + said, program_to_test()} +
            arguments("run", kForRanks),
        {.program = "/bin/sh"});
  });
  ASSERT_TRUE(wait_for([&] { return has_done_a_step("run"); }));
  std::vector<pid_t> ranks = processes();
  ASSERT_EQ(ranks.size(), 2u);
  if (!is_first_rank(ranks[0])) std::swap(ranks[0], ranks[1]);
  ::kill(ranks[1], SIGSTOP);
  ::kill(ranks[0], SIGINT);
  EXPECT_TRUE(
      wait_for([&] { return holds(said, "mpretrain: stopping; dropping the unfinished step"); }));
  EXPECT_FALSE(holds(said, "stopped by a signal"));
  ::kill(ranks[1], SIGCONT);
  const ProgramResult stopped = running.get();
  EXPECT_EQ(stopped.exit_code, kStopped) << stopped.err;
  const int64_t saved = newest_checkpoint(config("run"));
  ASSERT_TRUE(saved == 1 || saved == 2) << saved;
  EXPECT_TRUE(holds(said, fmt::format("stopped by a signal at step {} of 3; saved in", saved)));
  const ProgramResult rest = run_ranks_program(2, arguments("run", kForRanks, "latest"));
  EXPECT_EQ(rest.exit_code, 0) << rest.err;
  expect_undisturbed("run", kForRanks);
}

// Covers every way in which ranks exchange weights, gradients and scales.
TEST_F(Stop, RanksGoOnToTheSameBits) {
  const std::vector<std::string> fp8{"precision.compute=fp8", "precision.fp8_history=3"};
  const std::vector<std::vector<std::string>> settings{
      fp8 + std::vector<std::string>{"precision.weights=nvfp4"},
      fp8 + std::vector<std::string>{"precision.weights=block_fp8",
                                     "precision.fp8_amax_update=microbatch"},
      {"distributed.sharding=none"},
      {"batch.micro_batch_rows=0", "batch.tokens_per_step=48000"}};
  for (const std::vector<std::string>& setting : settings) {
    const std::vector<std::string> more = kForRanks + setting;
    for (const auto* name : {"run", "whole"})
      posix_file_system().remove_tree(run_directory(config(name)));
    train_on(2, config("whole", more));
    std::optional<StopSignal> signals(std::in_place, StopSignal::Voice::kSilent);
    auto running = std::async(std::launch::async, [&] { train_on(2, config("run", more)); });
    EXPECT_TRUE(wait_for([&] { return has_done_a_step("run"); }));
    ::kill(::getpid(), SIGUSR1);
    running.get();
    // Ranks that agree too late for this step leave the next.
    const int64_t saved = newest_checkpoint(config("run"));
    ASSERT_TRUE(saved == 1 || saved == 2) << saved;
    signals.reset();
    signals.emplace(StopSignal::Voice::kSilent);  // none has arrived here
    train_on(2, config("run", more), checkpoint_path(config("run"), saved));
    expect_undisturbed("run", more);
  }
}

}  // namespace
}  // namespace mpt::test
