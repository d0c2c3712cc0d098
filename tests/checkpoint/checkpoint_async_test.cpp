// Checkpoints written while training continues: when weights may change, which rank reports a
// failure, and the state after a failure at any operation.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/checkpoint_saver.h"
#include "support/captured_log.h"
#include "support/expect_error.h"
#include "support/fault_file_system.h"
#include "support/files.h"
#include "support/rank_threads.h"
#include "support/temp_directory.h"

namespace mpt {
namespace {

using test::disk;

using test::CapturedLog;
using test::Fault;
using test::FaultFileSystem;
using test::HostMemoryDevice;
using test::RankThreads;
using test::SmallTrainState;
using test::state_at;
using test::StateOfRank;
using test::TempDirectory;
using test::UnsyncedRenames;

// Closed until open() is called.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    reached_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  // Waits until someone waits at it.
  void wait_until_reached() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reached_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false, reached_ = false;
};

// A device whose memory, after the first block, is read only once a gate is open.
class SlowlyReadDevice final : public Device {
 public:
  explicit SlowlyReadDevice(Gate& gate) : gate_(gate) {}
  [[nodiscard]] Backend backend() const override { return Backend::kCpu; }
  [[nodiscard]] std::string name() const override { return "host memory, slowly read"; }
  [[nodiscard]] std::string libraries() const override { return ""; }
  [[nodiscard]] int64_t memory_bytes() const override { return 0; }
  std::unique_ptr<Allocator> make_allocator() override { return host_.make_allocator(); }
  void download(const Tensor& source, std::byte* target) override {
    host_.download(source, target);
  }
  void upload(const std::byte* source, const Tensor& target) override {
    host_.upload(source, target);
  }
  void synchronize() override {}
  Gemm& gemm() override { return host_.gemm(); }
  Attention& attention() override { return host_.attention(); }
  std::unique_ptr<DeviceReader> make_reader() override { return std::make_unique<Reader>(*this); }

 private:
  class Reader final : public DeviceReader {
   public:
    explicit Reader(SlowlyReadDevice& device) : device_(device) {}
    void begin() override {}
    void read(std::span<const Tensor> blocks, const Take& take) override {
      for (size_t i = 0; i < blocks.size(); ++i) {
        if (i == 1) device_.gate_.pass();
        std::vector<std::byte> bytes(
            static_cast<size_t>(blocks[i].elements() * size_of(blocks[i].dtype)));
        device_.download(blocks[i], bytes.data());
        take(bytes);
      }
    }

   private:
    SlowlyReadDevice& device_;
  };
  Gate& gate_;
  HostMemoryDevice host_;
};

StateToSave what_to_save(int64_t step, const StateOfRank& of) {
  return {.state = state_at(step), .resting = of.resting(), .changing = of.changing()};
}

std::string loaded_content(const std::string& path) {
  SmallTrainState run;
  HostMemoryDevice device;
  load_checkpoint(disk, path, run.tensors, device);
  return run.content();
}

// --- in parallel with training -------------------------------------------------------------------

TEST(AsyncCheckpoint, UpdatesWaitForTheReadingAndForNothingElse) {
  const TempDirectory directory(test::memory_directory());
  Gate reading, syncing;
  FaultFileSystem slow(disk);
  slow.before_sync([&](const std::string&) { syncing.pass(); });
  SlowlyReadDevice device(reading);
  CheckpointStore store(slow, directory.path(), {});
  StateOfRank run(Communicator::single());
  run.fill(1);
  CheckpointSaver saver(store, device);
  saver.begin(what_to_save(10, run));
  reading.wait_until_reached();
  EXPECT_TRUE(saver.busy());
  EXPECT_EQ(saver.poll(), std::nullopt);

  // Tensors that forward and backward change may change: the others are constant while they are
  // read.
  const Tensor counts = run.changing()[0].whole.tensor;
  std::fill_n(counts.data, counts.bytes(), std::byte{7});
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    reading.open();
  });
  saver.before_update();
  opener.join();
  run.fill(2);  // the update
  syncing.wait_until_reached();
  EXPECT_EQ(saver.poll(), std::nullopt);
  EXPECT_TRUE(store.list().empty());
  saver.before_update();  // of the next step: no longer waits for anything
  syncing.open();

  const std::optional<SaveReport> report = saver.finish();
  ASSERT_TRUE(report.has_value());
  EXPECT_FALSE(saver.busy());
  EXPECT_EQ(loaded_content(directory / "step_00000010"), SmallTrainState::content_of(1));
  EXPECT_EQ(report->step, 10);
  EXPECT_EQ(report->bytes,
            disk.file_size(directory / "step_00000010/rank_00000_of_00001.safetensors"));
  EXPECT_GT(report->seconds_paused, 0.025);
  EXPECT_GE(report->seconds, report->seconds_paused);
  EXPECT_NE(report->text().find("training paused"), std::string::npos);
  EXPECT_EQ(saver.poll(), std::nullopt);
  EXPECT_EQ(saver.finish(), std::nullopt);
}

TEST(AsyncCheckpoint, IsCommittedWhenEveryRankHasWritten) {
  const TempDirectory directory(test::memory_directory());
  FaultFileSystem slow(disk);
  Gate syncing;
  slow.before_sync([&](const std::string& path) {
    if (path.find("rank_00001") != std::string::npos) syncing.pass();
  });
  RankThreads(3).run([&](Communicator& group) {
    HostMemoryDevice device;
    CheckpointStore store(slow, directory.path(), {});
    StateOfRank mine(group);
    mine.fill(1);
    CheckpointSaver saver(store, device, group);
    saver.begin(what_to_save(10, mine));
    saver.before_update();
    mine.fill(2);
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(saver.poll(), std::nullopt);
      EXPECT_TRUE(store.list().empty());
    }
    static_cast<void>(group.gather_numbers(0));  // all have looked
    syncing.open();
    const std::optional<SaveReport> report = saver.finish();
    ASSERT_TRUE(report.has_value());
    EXPECT_GT(report->bytes, 3 * 100);  // of all ranks
    EXPECT_EQ(store.latest_good(group), directory / "step_00000010");
  });
  EXPECT_EQ(loaded_content(directory / "step_00000010"), SmallTrainState::content_of(1));
}

TEST(AsyncCheckpoint, ASaveThatIsGivenUpLeavesNothing) {
  const TempDirectory directory(test::memory_directory());
  Gate reading;
  SlowlyReadDevice device(reading);
  CheckpointStore store(disk, directory.path(), {});
  const StateOfRank run(Communicator::single());
  {
    CheckpointSaver saver(store, device);
    saver.begin(what_to_save(10, run));
    reading.wait_until_reached();
    EXPECT_THROW(saver.begin(what_to_save(20, run)), LogicError);
    reading.open();
  }
  EXPECT_TRUE(disk.list_directory(directory.path()).empty());
}

TEST(AsyncCheckpoint, RanksThatSeeDifferentDisksAreRefused) {
  const TempDirectory one(test::memory_directory()), other(test::memory_directory());
  RankThreads(2).run([&](Communicator& group) {
    HostMemoryDevice device;
    CheckpointStore store(disk, (group.rank() == 0 ? one : other).path(), {});
    if (group.rank() == 1) disk.create_directories(store.staging_directory(10));
    const StateOfRank mine(group);
    CheckpointSaver saver(store, device, group);
    saver.begin(what_to_save(10, mine));
    EXPECT_ERROR(saver.finish(), "rank_00001_of_00002.safetensors", "output_dir must be the same");
  });
  EXPECT_TRUE(disk.list_directory(one.path()).empty());
}

// --- failures ------------------------------------------------------------------------------------

TEST(AsyncCheckpoint, AFailureOfOneRankIsThrownOnAll) {
  const TempDirectory directory(test::memory_directory());
  RankThreads(3).run([&](Communicator& group) {
    FaultFileSystem mine_fails(disk);
    HostMemoryDevice device;
    CheckpointStore store(mine_fails, directory.path(), {});
    StateOfRank mine(group);
    CheckpointSaver saver(store, device, group);
    if (group.rank() == 2) mine_fails.fail_at(4, Fault::kShortWrite);  // within its tensors
    saver.begin(what_to_save(10, mine));
    EXPECT_ERROR(saver.finish(), "step 10", "rank 2", "operation 4 fails");
    EXPECT_FALSE(saver.busy());
    static_cast<void>(group.gather_numbers(0));
    EXPECT_TRUE(disk.list_directory(directory.path()).empty());
    static_cast<void>(group.gather_numbers(0));
    saver.begin(what_to_save(20, mine));
    EXPECT_TRUE(saver.finish().has_value());
    if (group.rank() == 0) mine_fails.fail_at(1, Fault::kError);  // making the directory
    EXPECT_ERROR(saver.begin(what_to_save(30, mine)), "rank 0", "operation 1 fails");
    EXPECT_FALSE(saver.busy());
    EXPECT_EQ(store.latest_good(group), directory / "step_00000020");
  });
}

struct AsyncScenario {
  const char* name;
  int64_t ranks;
  int64_t step;  // saved with the pattern 99 while the file system fails
};
constexpr int64_t kBefore = 10;  // saved before, with its own number as pattern

class FailingAsyncSave : public testing::TestWithParam<std::tuple<AsyncScenario, Fault>> {
 protected:
  static constexpr int64_t kPattern = 99;

  // Saves by all ranks, like a run; returns whether it threw, on all of them alike.
  static bool save(FileSystem& through, const std::string& directory, int64_t ranks, int64_t step,
                   int64_t k) {
    std::atomic<int64_t> threw = 0;
    RankThreads(ranks).run([&](Communicator& group) {
      HostMemoryDevice device;
      CheckpointStore store(through, directory, {.keep_last = 1});
      StateOfRank mine(group);
      mine.fill(k);
      try {
        CheckpointSaver saver(store, device, group);
        saver.begin(what_to_save(step, mine));
        saver.before_update();
        mine.fill(k + 1);
        saver.finish();
      } catch (const Error&) {
        ++threw;
      }
    });
    EXPECT_TRUE(threw == 0 || threw == ranks) << threw;
    return threw > 0;
  }

  // Every listed checkpoint is good, and holds the data saved at that step.
  static void expect_all_good(const std::string& directory, int64_t failed_step) {
    const CheckpointStore store(disk, directory, {});
    ASSERT_FALSE(store.list().empty());
    for (const CheckpointInfo& info : store.list()) {
      const std::string content = loaded_content(info.path);
      const bool is_new =
          info.step == failed_step && content == SmallTrainState::content_of(kPattern);
      EXPECT_TRUE(is_new || content == SmallTrainState::content_of(info.step)) << info.path;
    }
    EXPECT_EQ(store.latest_good(), store.list().back().path);
  }

  static void expect_saves_again(const std::string& directory, const AsyncScenario& scenario) {
    EXPECT_FALSE(save(disk, directory, 1, scenario.step, kPattern));
    EXPECT_EQ(disk.list_directory(directory),
              std::vector{fmt::format("step_{:08}", scenario.step)});
    EXPECT_EQ(loaded_content(fmt::format("{}/step_{:08}", directory, scenario.step)),
              SmallTrainState::content_of(kPattern));
  }

  // Lets the n-th operation of the save fail; returns whether it was reached.
  static bool fail_and_check(const std::string& before, int64_t n,
                             std::optional<UnsyncedRenames> power_cut) {
    const auto& [scenario, fault] = GetParam();
    const TempDirectory directory(test::memory_directory());
    const std::string checkpoints = directory / "checkpoints";
    std::filesystem::copy(before, checkpoints, std::filesystem::copy_options::recursive);
    FaultFileSystem faulty(disk);
    faulty.fail_at(n, fault);
    const bool threw = save(faulty, checkpoints, scenario.ranks, scenario.step, kPattern);
    const bool broke = faulty.broke();
    if (power_cut) faulty.drop_unsynced(*power_cut);
    expect_all_good(checkpoints, scenario.step);
    if (HasFatalFailure()) return false;
    if (!threw) {
      EXPECT_EQ(loaded_content(fmt::format("{}/step_{:08}", checkpoints, scenario.step)),
                SmallTrainState::content_of(kPattern));
    }
    expect_saves_again(checkpoints, scenario);
    return broke;
  }
};

TEST_P(FailingAsyncSave, LeavesTheOldOrTheNewOne) {
  const auto& [scenario, fault] = GetParam();
  const CapturedLog quiet;
  const TempDirectory before(test::memory_directory());
  save(disk, before.path(), scenario.ranks, kBefore, kBefore);
  std::vector<std::optional<UnsyncedRenames>> power{std::nullopt};
  if (fault == Fault::kError || fault == Fault::kStop)
    power.insert(power.end(), {UnsyncedRenames::kKept, UnsyncedRenames::kUndone});
  for (const auto& power_cut : power) {
    for (int64_t n = 1;; ++n) {
      ASSERT_LT(n, 200);
      SCOPED_TRACE(fmt::format("operation {}{}", n, power_cut ? " and a power cut" : ""));
      if (!fail_and_check(before.path(), n, power_cut)) break;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Everywhere, FailingAsyncSave,
    testing::Combine(
        testing::Values(AsyncScenario{"one_rank", 1, 20}, AsyncScenario{"three_ranks", 3, 20},
                        AsyncScenario{"three_ranks_replace", 3, 10}),
        testing::Values(Fault::kError, Fault::kShortWrite, Fault::kStop, Fault::kStopShort)),
    [](const auto& test) {
      return fmt::format("{}_{}", std::get<0>(test.param).name, name_of(std::get<1>(test.param)));
    });

}  // namespace
}  // namespace mpt
