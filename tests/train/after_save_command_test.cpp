// The command run after a commit: it never delays training, and its failure is reported.
#include "train/after_save_command.h"

#include <chrono>
#include <csignal>
#include <thread>

#include <gtest/gtest.h>

#include "checkpoint/checkpoint_store.h"
#include "core/io/file_system.h"
#include "support/captured_log.h"
#include "support/host_memory_device.h"
#include "support/temp_directory.h"

namespace mpt::test {
namespace {

class AfterSaveCommandTest : public testing::Test {
 protected:
  [[nodiscard]] std::string file(const std::string& name) const { return directory_ / name; }
  [[nodiscard]] std::string text(const std::string& name) const {
    return posix_file_system().read_file(file(name));
  }
  // Ends once a file appears.
  [[nodiscard]] std::string waiting_for(const std::string& name) const {
    return fmt::format("until [ -e {}$MPRETRAIN_STEP ]; do sleep 0.01; done; ", file(name));
  }
  void release(int64_t step) {
    write_file_atomically(posix_file_system(), file(fmt::format("go{}", step)), {});
  }
  TempDirectory directory_;
  CapturedLog log_{spdlog::level::info};
};

TEST_F(AfterSaveCommandTest, KnowsTheCheckpointAndPrintsIntoItsLog) {
  AfterSaveCommand command("cat; echo $MPRETRAIN_STEP at \"$MPRETRAIN_CHECKPOINT\"; echo oh >&2",
                           file("log"));
  command.committed(7, "/a b/step_00000007");
  command.finish();
  command.committed(9, "/c");
  command.finish();
  EXPECT_EQ(text("log"), "7 at /a b/step_00000007\noh\n9 at /c\noh\n");
  EXPECT_TRUE(log_.has("checkpoint.on_commit of step 7: done in")) << log_.text();
  EXPECT_TRUE(command.steps_in_use().empty());
}

TEST_F(AfterSaveCommandTest, RunsOneAtATimeAndTheNewestNext) {
  AfterSaveCommand command(waiting_for("go") + "echo $MPRETRAIN_STEP", file("log"));
  for (const int64_t step : {1, 2, 3}) command.committed(step, "x");
  EXPECT_EQ(command.steps_in_use(), (std::vector<int64_t>{1, 3}));
  EXPECT_TRUE(
      log_.has("checkpoint.on_commit: step 2 is passed over, because that of step 1 still "
               "runs"))
      << log_.text();
  command.poll();
  EXPECT_EQ(command.steps_in_use(), (std::vector<int64_t>{1, 3}));
  release(1);
  while (command.steps_in_use().front() == 1) command.poll();
  EXPECT_EQ(command.steps_in_use(), std::vector<int64_t>{3});
  release(3);
  command.finish();
  EXPECT_EQ(text("log"), "1\n3\n");
}

TEST_F(AfterSaveCommandTest, FailuresAreTold) {
  AfterSaveCommand command("echo no space; [ $MPRETRAIN_STEP = 2 ] || exit 3", file("log"));
  command.committed(1, "x");
  command.finish();
  EXPECT_TRUE(log_.has("checkpoint.on_commit of step 1 failed with exit status 3 after"))
      << log_.text();
  EXPECT_TRUE(log_.has("what it printed is in " + file("log"))) << log_.text();
  command.committed(2, "x");
  command.finish();
  EXPECT_TRUE(log_.has("checkpoint.on_commit failed for 1 of 2 checkpoints")) << log_.text();
  AfterSaveCommand killed("kill -9 $$", file("log"));
  killed.committed(1, "x");
  killed.finish();
  EXPECT_TRUE(log_.has("was ended by signal 9")) << log_.text();
  AfterSaveCommand unknown("no-such-program-at-all", file("log"));
  unknown.committed(1, "x");
  unknown.finish();
  EXPECT_TRUE(log_.has("failed with exit status 127")) << log_.text();
  AfterSaveCommand unlogged("true", file("no/such/log"));
  unlogged.committed(1, "x");
  unlogged.finish();
  EXPECT_TRUE(log_.has("checkpoint.on_commit of step 1 could not be started, with output to"))
      << log_.text();
}

// The program itself ignores the signals of a closed pipe and of a file size limit.
TEST_F(AfterSaveCommandTest, HasTheUsualSignalsOfWrites) {
  const std::vector<int> ignored{SIGPIPE, SIGXFSZ};
  std::vector<void (*)(int)> before;
  for (const int signal : ignored) before.push_back(std::signal(signal, SIG_IGN));
  AfterSaveCommand command("yes | head -n 1; grep SigIgn /proc/self/status", file("log"));
  command.committed(1, "x");
  command.finish();
  for (size_t i = 0; i < ignored.size(); ++i) std::signal(ignored[i], before[i]);
  EXPECT_TRUE(text("log").starts_with("y\nSigIgn:")) << text("log");
  const uint64_t left = std::stoull(text("log").substr(text("log").rfind('\t')), nullptr, 16);
  for (const int signal : ignored) EXPECT_EQ(left >> (signal - 1) & 1, 0u) << strsignal(signal);
}

TEST_F(AfterSaveCommandTest, IsWaitedForInPieces) {
  using namespace std::chrono_literals;
  AfterSaveCommand command(waiting_for("go"), file("log"));
  command.committed(1, "x");
  EXPECT_FALSE(command.finish(1ms));
  EXPECT_FALSE(command.finish(1ms));
  release(1);
  while (!command.finish(1ms)) continue;
  EXPECT_TRUE(command.steps_in_use().empty());
  const std::string told = "waiting for checkpoint.on_commit of step 1";
  EXPECT_EQ(log_.text().find(told), log_.text().rfind(told)) << log_.text();
  EXPECT_TRUE(log_.has(told));
}

TEST_F(AfterSaveCommandTest, NoneDoesNothing) {
  AfterSaveCommand command("", file("log"));
  command.committed(1, "x");
  command.finish();
  EXPECT_TRUE(command.steps_in_use().empty());
  EXPECT_EQ(log_.text(), "");
}

// A checkpoint that the command reads is not removed, however many follow.
TEST_F(AfterSaveCommandTest, ItsCheckpointIsHeld) {
  HostMemoryDevice device;
  CheckpointStore store(posix_file_system(), file("checkpoints"), {.keep_last = 1});
  const auto steps = [&] {
    std::vector<int64_t> all;
    for (const CheckpointInfo& info : store.list()) all.push_back(info.step);
    return all;
  };
  const auto save = [&](int64_t step) {
    store.save(
        {.step = step, .config = nlohmann::json::object(), .extra = nlohmann::json::object()}, {},
        device);
  };
  save(1);
  store.hold({1});
  for (const int64_t step : {2, 3}) save(step);
  EXPECT_EQ(steps(), (std::vector<int64_t>{1, 3}));
  store.hold({});
  store.prune();
  EXPECT_EQ(steps(), std::vector<int64_t>{3});
}

}  // namespace
}  // namespace mpt::test
