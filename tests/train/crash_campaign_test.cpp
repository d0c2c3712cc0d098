// Runs interrupted at any moment, in any way, and resumed until they finish: every time the last
// committed checkpoint is valid, only the steps since are lost, and the final state is
// bit-identical to that of an uninterrupted run.
//
//   MPT_CRASHES=300 mpt_train_tests --gtest_filter='CrashCampaign.*'
//                                                the whole campaign; fewer crashes by default
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <iostream>

#include <gtest/gtest.h>

#include "checkpoint/checkpoint_files.h"
#include "config/run_paths.h"
#include "support/fault_file_system.h"
#include "support/find_processes.h"
#include "support/ranks_program.h"
#include "support/ranks_run.h"
#include "support/temp_directory.h"

namespace mpt::test {
namespace {

int crashes_asked_for(int otherwise) {
  const char* text = std::getenv("MPT_CRASHES");
  return text == nullptr ? otherwise : std::atoi(text);
}

const std::vector<std::string> kOverrides{"checkpoint.every_steps=2",    "checkpoint.keep_last=2",
                                          "eval.every_steps=4",          "device.threads=1",
                                          "precision.weights=block_fp8", "precision.compute=fp8",
                                          "precision.fp8_history=3"};

// Steps of a run: many if most of its time would otherwise be spent starting processes.
constexpr int64_t kShort = 12, kLong = 100;

RunConfig config_of(const std::string& directory, const std::string& name, int64_t steps) {
  std::vector<std::string> overrides = kOverrides;
  overrides.push_back(fmt::format("train.steps={}", steps));
  return tiny_config(directory, name, overrides);
}

// Output of the uninterrupted run with the same number of ranks.
struct Reference {
  std::string state, metrics;
};

// Returns the newest checkpoint that looks committed; 0 if none.
int64_t newest_committed(const RunConfig& config) {
  const std::vector<CheckpointInfo> all =
      CheckpointStore(posix_file_system(), checkpoint_directory(config), {}).list();
  return all.empty() ? 0 : all.back().step;
}

// Returns the last step recorded in metrics.jsonl; 0 if none.
int64_t last_step_logged(const RunConfig& config) {
  if (!posix_file_system().exists(metrics_path(config))) return 0;
  const MetricsLog whole_lines(posix_file_system(), metrics_path(config));  // cuts off a torn one
  const auto records = records_of(config);
  return records.empty() ? 0 : records.rbegin()->first;
}

// A checkpoint that looks committed is good, whatever happened.
void expect_newest_is_good(const RunConfig& config) {
  const CheckpointStore store(posix_file_system(), checkpoint_directory(config), {});
  const std::vector<CheckpointInfo> all = store.list();
  if (all.empty()) return;
  EXPECT_NO_THROW(verify_checkpoint(posix_file_system(), all.back().path)) << all.back().path;
}

void expect_end_of(const Reference& reference, const RunConfig& config) {
  ASSERT_TRUE(state_at(config, *config.train.steps) == reference.state) << config.name;
  ASSERT_EQ(metrics_of(config), reference.metrics) << config.name;
}

// --- a file system that breaks at every n-th operation, under ranks that are threads -------------

class Faults : public testing::TestWithParam<int64_t> {
 protected:
  Faults() { write_tiny_data(directory_.path()); }

  RunConfig config(const std::string& name) const {
    return config_of(directory_.path(), name, kShort);
  }
  Reference reference() const {
    const RunConfig whole = config("whole");
    train_on(GetParam(), whole);
    return {state_at(whole, kShort), metrics_of(whole)};
  }
  // Resumes from the newest good checkpoint, or starts.
  void go_on(const RunConfig& config, FileSystem& fs) const {
    const CheckpointStore store(posix_file_system(), checkpoint_directory(config), {});
    train_on(GetParam(), config, store.latest_good().value_or(""), fs);
  }

  TempDirectory directory_{memory_directory()};
};

TEST_P(Faults, AtEveryOperation) {
  const Reference reference = this->reference();
  FaultFileSystem counted(posix_file_system());
  train_on(GetParam(), config("counted"), "", counted);
  const int64_t operations = counted.mutations(), crashes = crashes_asked_for(24) / 3;
  int64_t broken = 0;
  for (int64_t k = 0; k < crashes; ++k) {
    const RunConfig run = config(fmt::format("broken{}", k));
    FaultFileSystem fs(posix_file_system());
    const auto fault = std::array{Fault::kError, Fault::kShortWrite, Fault::kStop,
                                  Fault::kStopShort}[size_t(k % 4)];
    fs.fail_at(1 + k * operations / crashes, fault);
    try {
      go_on(run, fs);
    } catch (const Error&) {
      ++broken;
    }
    const int64_t committed = newest_committed(run);
    expect_newest_is_good(run);
    // Pruning may fail without harm to the run.
    if (committed < kShort) go_on(run, posix_file_system());
    EXPECT_GE(newest_committed(run), committed);
    expect_end_of(reference, run);
  }
  EXPECT_GT(broken, crashes / 2);
  std::cout << fmt::format("{} rank(s): {} faults among {} operations, {} of them ended a run\n",
                           GetParam(), crashes, operations, broken);
}
INSTANTIATE_TEST_SUITE_P(CrashCampaign, Faults, testing::Values(1, 2, 3), [](const auto& instance) {
  return fmt::format("ranks{}", instance.param);
});

// --- killed processes ----------------------------------------------------------------------------

enum class Blow {
  kKillOneRank,
  kKillAllRanks,
  kKillEverything,
  kTerminateOneRank,
  kTerminateAllRanks
};
constexpr int kBlows = 5;

void strike(Blow blow, const std::string& run, Draws& draws) {
  std::vector<pid_t> ranks = processes_that_say("name=" + run, "mpretrain");
  if (blow == Blow::kKillEverything) ranks = processes_that_say("name=" + run, "");
  if (ranks.empty()) return;
  const bool one = blow == Blow::kKillOneRank || blow == Blow::kTerminateOneRank;
  if (one) ranks = {ranks[size_t(draws.index(int64_t(ranks.size())))]};
  const bool terminates = blow == Blow::kTerminateOneRank || blow == Blow::kTerminateAllRanks;
  for (const pid_t process : ranks) ::kill(process, terminates ? SIGTERM : SIGKILL);
}

struct Campaign {
  int blows = 0;       // that ended a run before it was done
  int stops = 0;       // those with exit code 75, saved
  int64_t lost = 0;    // steps that had to be repeated
  double longest = 0;  // seconds from a blow to the end of all processes
  std::array<int, kBlows> by_kind{};
};

class Kills : public testing::TestWithParam<int> {
 protected:
  Kills() {
    write_tiny_data(directory_.path());
    write_file_atomically(posix_file_system(), directory_ / "config.json",
                          bytes_of(tiny_config_text(directory_.path(), "run")));
  }

  ProgramResult train_to_end(const std::string& name) const {
    std::vector<std::string> arguments{
        "--config", directory_ / "config.json", "--resume", "auto", "--set", "name=" + name};
    for (const std::string& text : kOverrides) arguments.insert(arguments.end(), {"--set", text});
    arguments.insert(arguments.end(), {"--set", fmt::format("train.steps={}", kLong)});
    if (GetParam() == 1)
      return run_program(arguments, {.timeout_s = 120, .env = ranks_environment()});
    return run_launched(GetParam(), arguments, {.timeout_s = 120});
  }
  RunConfig config(const std::string& name) const {
    return config_of(directory_.path(), name, kLong);
  }

  // Bytes of the log of steps, torn lines included: how far a run has come, whatever a step takes.
  size_t logged(const std::string& name) const {
    std::error_code none_yet;
    const auto bytes = std::filesystem::file_size(metrics_path(config(name)), none_yet);
    return none_yet ? 0 : size_t(bytes);
  }

  // Starts the run, strikes when its log has `bytes`, and records the outcome.
  bool break_off(const std::string& name, Blow blow, size_t bytes, Draws& draws,
                 Campaign& campaign) const {
    using namespace std::chrono_literals;
    auto running = std::async(std::launch::async, [&] { return train_to_end(name); });
    bool ended = false;
    while (!ended && logged(name) < bytes)
      ended = running.wait_for(1ms) == std::future_status::ready;
    const auto start = std::chrono::steady_clock::now();
    if (!ended) strike(blow, name, draws);
    const ProgramResult result = running.get();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_FALSE(result.timed_out);
    const bool complete = result.err.find("complete at step") != std::string::npos;
    if (ended) {
      EXPECT_EQ(result.exit_code, 0) << result.err;
    }
    if (ended || complete) return false;
    ++campaign.blows;
    ++campaign.by_kind[size_t(blow)];
    campaign.longest = std::max(campaign.longest, seconds);
    if (result.exit_code == 75) ++campaign.stops;
    return true;
  }

  TempDirectory directory_;
};

TEST_P(Kills, AtAnyMoment) {
  if (GetParam() > 1) {
    MPT_SKIP_WITHOUT_GLOO();
  }
  ASSERT_EQ(train_to_end("whole").exit_code, 0);
  const Reference reference{state_at(config("whole"), kLong), metrics_of(config("whole"))};
  const double whole = double(logged("whole"));
  Draws draws{uint64_t(GetParam())};
  Campaign campaign;
  const int wanted = crashes_asked_for(8) / 2;
  for (int run = 0; campaign.blows < wanted; ++run) {
    const std::string name = fmt::format("killed{}", run);
    // Six blows at most, and none after the whole log: a run comes to its end.
    for (int blows = 0; blows < 6; ++blows) {
      const auto blow = static_cast<Blow>(draws.index(kBlows));
      const double now = double(logged(name)), left = std::max(0.0, whole - now);
      const auto bytes = size_t(now + draws.uniform(0.0, 1.1) * left);
      if (!break_off(name, blow, bytes, draws, campaign)) break;
      expect_newest_is_good(config(name));
      campaign.lost += last_step_logged(config(name)) - newest_committed(config(name));
    }
    const int64_t newest = newest_committed(config(name));
    const ProgramResult rest = train_to_end(name);
    ASSERT_EQ(rest.exit_code, 0) << rest.err;
    if (newest > 0) {
      EXPECT_NE(rest.err.find("continuing from " + checkpoint_path(config(name), newest)),
                std::string::npos)
          << rest.err;
    }
    expect_end_of(reference, config(name));
  }
  // A hang would have been ended by the time limit of a run.
  std::cout << fmt::format(
      "{} rank(s): {} runs broken off (one rank killed {}, all killed {}, all and mpirun killed "
      "{}, one terminated {}, all terminated {}); {} saved and ended with code 75; {} steps made "
      "again; at most {:.1f} s until all had ended\n",
      GetParam(), campaign.blows, campaign.by_kind[0], campaign.by_kind[1], campaign.by_kind[2],
      campaign.by_kind[3], campaign.by_kind[4], campaign.stops, campaign.lost, campaign.longest);
}
INSTANTIATE_TEST_SUITE_P(CrashCampaign, Kills, testing::Values(1, 2), [](const auto& instance) {
  return fmt::format("ranks{}", instance.param);
});

}  // namespace
}  // namespace mpt::test
