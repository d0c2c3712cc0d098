// The guard against spikes: its reference values, and runs with a spike in their data.
#include "train/incidents/spike_guard.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "checkpoint/checkpoint_files.h"
#include "config/run_device.h"
#include "config/run_paths.h"
#include "support/captured_log.h"
#include "support/expect_error.h"
#include "support/ranks_run.h"
#include "support/temp_directory.h"
#include "train/adamw_run.h"
#include "train/resume/resume_check.h"
#include "train/run_state.h"

namespace mpt::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

SpikeGuard guard_of(int64_t window, double z, SpikePolicy policy = SpikePolicy::kWarn) {
  TrainConfig config;
  config.spike_policy = policy;
  config.spike_window = window;
  config.spike_z = z;
  return SpikeGuard(config);
}

TEST(SpikeGuard, ComparesWithTheLastSteps) {
  SpikeGuard guard = guard_of(4, 3);
  for (const double loss : {9.0, 1.0, 2.0}) {
    guard.see(loss, 10);
    EXPECT_EQ(guard.limits().loss, kInfinity) << "too early";
  }
  for (const double loss : {3.0, 4.0}) guard.see(loss, 10);  // 1 2 3 4 remain
  const double deviation = std::sqrt((1.5 * 1.5 + 0.5 * 0.5) * 2 / 3);
  EXPECT_DOUBLE_EQ(guard.limits().loss, 2.5 + 3 * deviation);
  EXPECT_DOUBLE_EQ(guard.limits().grad_norm, 10 + 3 * 0.01) << "at least a thousandth of the mean";
  EXPECT_FALSE(guard.stands_out(2.5 + 2.9 * deviation, 10));
  EXPECT_TRUE(guard.stands_out(2.5 + 3.1 * deviation, 10));
  EXPECT_TRUE(guard.stands_out(2.5, 10.04));
  EXPECT_FALSE(guard.stands_out(0, 0)) << "less is no spike";
  const Spike spike = guard.compare(2.5 + 7 * deviation, 9.99);
  EXPECT_DOUBLE_EQ(spike.loss_z, 7);
  EXPECT_NEAR(spike.grad_norm_z, -1, 1e-12);
}

TEST(SpikeGuard, AcceptsALastingChangeAfterSomeSteps) {
  SpikeGuard guard = guard_of(8, 4);
  for (int i = 0; i < 8; ++i) guard.see(1 + 0.01 * (i % 2), 1);
  int spikes = 0;
  for (int i = 0; i < 40; ++i) {
    spikes += guard.stands_out(5, 1);
    guard.see(5, 1);
  }
  EXPECT_GT(spikes, 1);
  EXPECT_LT(spikes, 16);
}

TEST(SpikeGuard, OffSeesNothing) {
  SpikeGuard guard = guard_of(2, 3, SpikePolicy::kOff);
  for (int i = 0; i < 5; ++i) guard.see(1, 1);
  EXPECT_FALSE(guard.stands_out(1e9, 1e9));
  EXPECT_TRUE(guard.json().is_null());
}

TEST(SpikeGuard, IsAsItWasAfterACheckpoint) {
  SpikeGuard guard = guard_of(3, 3), other = guard_of(3, 3), shorter = guard_of(2, 3);
  for (const double loss : {1.0, 1.0 / 3, 0.1, 7.0}) guard.see(loss, loss * loss);
  const nlohmann::json saved = nlohmann::json::parse(guard.json().dump());
  other.restore(saved, "state");
  EXPECT_EQ(other.limits().loss, guard.limits().loss);
  EXPECT_EQ(other.limits().grad_norm, guard.limits().grad_norm);
  shorter.restore(saved, "state");
  EXPECT_EQ(shorter.json().at("losses").size(), 2u);
  other.restore(nullptr, "state");
  EXPECT_EQ(other.limits().loss, kInfinity);
  EXPECT_ERROR(other.restore({{"losses", {1.0}}, {"grad_norms", nlohmann::json::array()}}, "state"),
               "state", "losses and gradient norms");
  EXPECT_ERROR(other.restore(3, "state"), "state", "losses and gradient norms");
}

// --- runs ----------------------------------------------------------------------------------------

constexpr int64_t kSpike = 15;  // the step that reads noise
using Overrides = std::vector<std::string>;

// Two alternating tokens, which are soon predicted, and the rows of one step in which they are not.
class SpikeRun : public testing::Test {
 protected:
  void SetUp() override {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < 96 * kTinySteps + 1; ++i)
      tokens.push_back(int32_t(i / 96 == kSpike - 1 ? (i * i + 7 * i) % 59 : 5 + i % 2));
    TokenShardWriter writer(path() + "/train_0.bin", TokenWidth::kUint16);
    writer.append(tokens);
    writer.commit();
    write_random_shard(path() + "/val_0.bin", 150, 4);
  }
  [[nodiscard]] const std::string& path() const { return directory_.path(); }
  RunConfig config(const std::string& name, Overrides overrides) const {
    if (!overrides.empty())
      overrides.insert(overrides.end(), {"train.spike_window=4", "train.spike_z=30"});
    overrides.insert(overrides.end(), {"data.shuffle=false", "device.threads=1"});
    return tiny_config(path(), name, overrides);
  }
  RunConfig run(const std::string& name, const Overrides& overrides, const std::string& from = "",
                int64_t ranks = 1) const {
    const RunConfig made = config(name, overrides);
    train_on(ranks, made, from);
    return made;
  }
  TempDirectory directory_{memory_directory()};
};

std::vector<int64_t> spikes_of(const RunConfig& config, const char* key) {
  std::vector<int64_t> steps;
  for (const auto& [step, record] : records_of(config))
    if (record.contains(key)) steps.push_back(step);
  return steps;
}

TEST_F(SpikeRun, IsToldAndChangesNothing) {
  const RunConfig off = run("off", {});
  const CapturedLog log;
  const RunConfig warned = run("warned", {"train.spike_policy=warn"});
  EXPECT_EQ(spikes_of(warned, "spike"), std::vector<int64_t>{kSpike});
  EXPECT_GT(records_of(warned).at(kSpike).at("spike").at("loss_z"), 30);
  EXPECT_TRUE(spikes_of(warned, "skipped").empty());
  EXPECT_TRUE(log.has("step 15: a spike: loss")) << log.text();
  EXPECT_TRUE(tensors_at(off, kTinySteps) == tensors_at(warned, kTinySteps));
}

TEST_F(SpikeRun, IsLeftOutByAnyNumberOfRanks) {
  for (const int64_t ranks : {1, 3}) {
    const RunConfig left =
        run(fmt::format("left{}", ranks), {"train.spike_policy=skip_step"}, "", ranks);
    EXPECT_EQ(spikes_of(left, "spike"), std::vector<int64_t>{kSpike});
    EXPECT_EQ(spikes_of(left, "skipped"), std::vector<int64_t>{kSpike});
    EXPECT_TRUE(state_at(left, kSpike - 1) == state_at(left, kSpike)) << "no update";
    EXPECT_FALSE(state_at(left, kSpike) == state_at(left, kSpike + 1));
  }
}

// Bias correction counts updates.
TEST_F(SpikeRun, IsNoUpdateOfTheMoments) {
  Overrides overrides = kAdamWRun;
  overrides.emplace_back("train.spike_policy=skip_step");
  const RunConfig left = run("left", overrides);
  ASSERT_EQ(spikes_of(left, "skipped"), std::vector<int64_t>{kSpike});
  expect_adamw_update(left, kSpike - 1, kSpike - 1);
  expect_adamw_update(left, kSpike + 1, kSpike);
  expect_adamw_update(left, kTinySteps, kTinySteps - 1);
}

TEST_F(SpikeRun, IsComparedWithTheSameStepsAfterAResume) {
  const Overrides skip{"train.spike_policy=skip_step"};
  const RunConfig whole = run("whole", skip);
  for (const int64_t step : {2, 13, 14, 15}) {
    const RunConfig part = run(fmt::format("part{}", step), skip, checkpoint_path(whole, step));
    EXPECT_TRUE(tensors_at(part, kTinySteps) == tensors_at(whole, kTinySteps)) << step;
  }
}

TEST_F(SpikeRun, IsRolledBackBehindItsData) {
  const RunConfig config =
      run("back", {"train.spike_policy=rollback", "checkpoint.every_steps=10", "train.steps=20"});
  const std::string lines = posix_file_system().read_file(metrics_path(config));
  EXPECT_NE(lines.find("rollback from step 15"), std::string::npos) << lines;
  EXPECT_EQ(nlohmann::json::parse(
                posix_file_system().read_file(checkpoint_path(config, 20) + "/state.json"))
                .at("cursor"),
            6 * 25)
      << "five steps more than 20";
}

// Not to a later step left in the directory by another run.
TEST_F(SpikeRun, IsRolledBackToAStepOfThisRun) {
  const Overrides common{"checkpoint.every_steps=5", "train.steps=20"};
  Overrides warned = common, back = common;
  warned.emplace_back("train.spike_policy=warn");
  back.emplace_back("train.spike_policy=rollback");
  const RunConfig former = run("again", warned);
  ASSERT_TRUE(posix_file_system().exists(checkpoint_path(former, 15)));
  const RunConfig again = run("again", back, checkpoint_path(former, 10));
  const std::string lines = posix_file_system().read_file(metrics_path(again));
  EXPECT_NE(lines.find(R"({"event":"resume","step":10,"reason":"rollback from step 15"})"),
            std::string::npos)
      << lines;
  EXPECT_EQ(read_checkpoint_state(posix_file_system(), checkpoint_path(again, 20)).cursor, 6 * 25);
}

// In another run's directory, regardless of earlier steps in its own.
TEST_F(SpikeRun, IsRolledBackToTheCheckpointItBeganWith) {
  const Overrides common{"checkpoint.every_steps=5", "train.spike_policy=warn"};
  const RunConfig former = run("former", common);
  Overrides five = common, back{"checkpoint.every_steps=5", "train.spike_policy=rollback"};
  five.emplace_back("train.steps=5");
  ASSERT_TRUE(posix_file_system().exists(checkpoint_path(run("branch", five), 5)));
  for (const char* const name : {"branch", "empty"}) {
    const RunConfig branch = run(name, back, checkpoint_path(former, 10));
    const std::string lines = posix_file_system().read_file(metrics_path(branch));
    EXPECT_NE(lines.find(R"({"event":"resume","step":10,"reason":"rollback from step 15"})"),
              std::string::npos)
        << name << lines;
  }
}

// An evaluation left pending by a signal is made once, however often its checkpoint is loaded.
TEST_F(SpikeRun, ARollbackLeavesNoEvaluation) {
  FileSystem& fs = posix_file_system();
  const Overrides overrides{"checkpoint.every_steps=10", "train.steps=20",
                            "train.spike_policy=rollback"};
  const RunConfig config = run("left", overrides);
  const std::string checkpoint = checkpoint_path(config, 10);
  CheckpointRecord record = read_checkpoint_record(fs, checkpoint);
  record.state.extra[kEvaluationLeft] = true;
  write_checkpoint_state(fs, checkpoint, record.state, record.files);
  const auto device = make_device(config.device);
  Trainer trainer(config, *device, fs);
  trainer.resume(checkpoint);
  EXPECT_TRUE(trainer.run());
  EXPECT_NE(fs.read_file(metrics_path(config)).find("rollback from step 15"), std::string::npos);
  EXPECT_FALSE(
      read_checkpoint_state(fs, checkpoint_path(config, 20)).extra.contains(kEvaluationLeft));
}

TEST_F(SpikeRun, StopsTheRun) {
  EXPECT_ERROR(run("unsaved", {"train.spike_policy=stop", "checkpoint.every_steps=20"}),
               "step 15: a spike", "nothing is saved. Start again");
  EXPECT_ERROR(run("stopped", {"train.spike_policy=stop"}), "step 15: a spike",
               "train.spike_policy=skip_step", "step_00000014");
}

TEST_F(SpikeRun, WithoutASpikeTheBitsAreThoseWithoutTheGuard) {
  write_tiny_data(path());
  const RunConfig off = run("off", {});
  for (const char* const policy : {"skip_step", "rollback", "stop"}) {
    const RunConfig on = run(policy, {fmt::format("train.spike_policy={}", policy)});
    EXPECT_TRUE(spikes_of(on, "spike").empty());
    EXPECT_TRUE(tensors_at(off, kTinySteps) == tensors_at(on, kTinySteps));
  }
}

}  // namespace
}  // namespace mpt::test
