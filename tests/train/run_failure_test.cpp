// An error between two steps ends a run like a signal: the last finished step is saved, and the run
// resumes from there as if uninterrupted.
#include "ranks/run_failure.h"

#include <filesystem>
#include <functional>
#include <new>

#include <gtest/gtest.h>

#include "config/run_paths.h"
#include "support/captured_log.h"
#include "support/expect_error.h"
#include "support/fault_file_system.h"
#include "support/ranks_run.h"
#include "support/temp_directory.h"

namespace mpt::test {
namespace {

using Overrides = std::vector<std::string>;

// Saves only at the end, unless an error occurs.
const Overrides kRare{"checkpoint.every_steps=0", "data.shuffle=false", "device.threads=1",
                      "data.prefetch_steps=1"};

class FailingRun : public testing::Test {
 protected:
  void SetUp() override { write_tiny_data(directory_.path()); }
  [[nodiscard]] RunConfig config(const std::string& name, Overrides more = {}) const {
    more.insert(more.end(), kRare.begin(), kRare.end());
    return tiny_config(directory_.path(), name, more);
  }
  [[nodiscard]] std::string file(const std::string& name) const { return directory_ / name; }

  // Trains; rank 0 causes `trouble` once all ranks have opened the data and allocated all memory.
  void train_with(const std::function<void()>& trouble, const RunConfig& config, int64_t ranks,
                  FileSystem& fs = posix_file_system()) const {
    posix_file_system().create_directories(run_directory(config));
    on_ranks(config, ranks, [&](RankOfRun& rank) {
      std::unique_ptr<Trainer> trainer;
      rank.ranks.or_abort([&] {
        trainer = std::make_unique<Trainer>(config, *rank.device, fs, rank.ranks);
        trainer->initialize();
        rank.ranks.gather_numbers(0);
        rank.ranks.together([&] {
          if (rank.ranks.is_root()) trouble();
        });
        trainer->run();
      });
    });
  }
  // Expects a run resumed after `step` to end like an undisturbed one, on one rank.
  void expect_undisturbed(const RunConfig& run, int64_t step, int64_t ranks) const {
    const RunConfig whole = config(fmt::format("whole{}", ranks));
    train_on(ranks, whole);
    train_on(ranks, run, checkpoint_path(run, step));
    EXPECT_TRUE(state_at(run, kTinySteps) == state_at(whole, kTinySteps));
    EXPECT_EQ(metrics_of(run), metrics_of(whole));
  }

  TempDirectory directory_{memory_directory()};
};

TEST_F(FailingRun, SavesBeforeAnEvaluationThatFails) {
  for (const int64_t ranks : {1, 3}) {
    SCOPED_TRACE(ranks);
    const RunConfig run = config(fmt::format("run{}", ranks));
    const std::string good = posix_file_system().read_file(file("val_0.bin"));
    EXPECT_ERROR(train_with([&] { std::filesystem::resize_file(file("val_0.bin"), 1024 + 150); },
                            run, ranks),
                 "val_0.bin: ends at byte 1174",
                 "step 5, the last that was finished, is saved in " + checkpoint_path(run, 5));
    EXPECT_FALSE(records_of(run).at(5).contains("val_loss"));
    write_file_atomically(posix_file_system(), file("val_0.bin"), bytes_of(good));
    expect_undisturbed(run, 5, ranks);
  }
}

// On one of three ranks, whose rows they are.
TEST_F(FailingRun, SavesWhenItsDataCannotBeRead) {
  for (const int64_t ranks : {1, 3}) {
    SCOPED_TRACE(ranks);
    const RunConfig run = config(fmt::format("run{}", ranks));
    const std::string shard = file("train_2.bin"), good = posix_file_system().read_file(shard);
    EXPECT_ERROR(train_with([&] { std::filesystem::resize_file(shard, 1024 + 540); }, run, ranks),
                 "train_2.bin: ends at byte 1564", "the last that was finished, is saved in ");
    const std::vector<CheckpointInfo> saved =
        CheckpointStore(posix_file_system(), checkpoint_directory(run), {}).list();
    ASSERT_EQ(saved.size(), 1u);
    EXPECT_EQ(saved[0].step, 6) << "648 tokens are left, for 40 rows";
    write_file_atomically(posix_file_system(), shard, bytes_of(good));
    expect_undisturbed(run, saved[0].step, ranks);
  }
}

// Its directory entry and metrics.jsonl are created two operations before the first line.
TEST_F(FailingRun, SavesWhenALineOfMetricsCannotBeWritten) {
  for (const int64_t ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    const RunConfig run = config(fmt::format("run{}", ranks));
    FaultFileSystem faulty(posix_file_system());
    EXPECT_ERROR(train_with([&] { faulty.fail_at(5, Fault::kError); }, run, ranks, faulty),
                 "fault file system: operation 5 fails",
                 "is saved in " + checkpoint_directory(run));
    const std::vector<CheckpointInfo> saved =
        CheckpointStore(posix_file_system(), checkpoint_directory(run), {}).list();
    ASSERT_EQ(saved.size(), 1u);
    EXPECT_EQ(saved[0].step, ranks == 1 ? 3 : 4) << "others learn of it after the next step";
  }
}

TEST_F(FailingRun, TellsTheFirstErrorIfItCannotSaveEither) {
  const RunConfig run = config("run");
  FaultFileSystem faulty(posix_file_system());
  EXPECT_ERROR(
      train_with([&] { faulty.fail_at(5, Fault::kStop); }, run, 1, faulty),
      "fault file system: operation 5 fails; nothing is saved: ", "fault file system: stopped");
}

TEST_F(FailingRun, KnowsAtItsStartThatItCannotEvaluate) {
  write_random_shard(file("val_0.bin"), 150, 4, kTinyVocab + 40);
  EXPECT_ERROR(train(config("run")), "val_0.bin: token", "outside the vocabulary");
  EXPECT_FALSE(posix_file_system().exists(metrics_path(config("run"))));
}

TEST_F(FailingRun, KnowsAtItsStartThatItsFirstShardsAreOfAnotherVocabulary) {
  write_random_shard(file("train_2.bin"), 512, 3, kTinyVocab + 40);
  EXPECT_ERROR(open_training_data(config("run")), "train_2.bin: token", "outside the vocabulary");
  EXPECT_ERROR(open_training_data(config("run"), 500), "train_2.bin: token");
  EXPECT_NO_THROW(open_training_data(config("run"), 378)) << "the tokens of the shards before it";
}

TEST(RunFailure, KeepsTheFirstAndItsType) {
  RunFailure failure;
  EXPECT_NO_THROW(failure.rethrow(Communicator::single(), "saved"));
  failure.attempt([] {});
  EXPECT_FALSE(failure.any());
  failure.attempt([] { throw std::bad_alloc(); });
  failure.attempt([] { throw error("second"); });
  EXPECT_TRUE(failure.any());
  const CapturedLog log;
  EXPECT_THROW(failure.rethrow(Communicator::single(), "step 3 is saved"), std::bad_alloc);
  EXPECT_TRUE(log.has("step 3 is saved")) << log.text();
}

}  // namespace
}  // namespace mpt::test
