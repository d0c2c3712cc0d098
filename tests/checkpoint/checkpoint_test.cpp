// Checkpoints: round trips, retention, and the state after a failure at any operation of a save.
#include <algorithm>
#include <cmath>
#include <future>
#include <limits>
#include <random>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/checkpoint_store.h"
#include "core/io/safetensors.h"
#include "support/captured_log.h"
#include "support/expect_error.h"
#include "support/fault_file_system.h"
#include "support/files.h"
#include "support/temp_directory.h"

namespace mpt {
namespace {

using test::disk;

using test::CapturedLog;
using test::Fault;
using test::FaultFileSystem;
using test::HostMemoryDevice;
using test::SmallTrainState;
using test::state_at;
using test::TempDirectory;
using test::UnsyncedRenames;

// Saves, at `step`, tensors filled with the pattern `k`.
void save(CheckpointStore& store, int64_t step, int64_t k) {
  SmallTrainState run;
  run.fill(k);
  HostMemoryDevice device;
  store.save(state_at(step), run.tensors, device);
}

std::string loaded_content(const CheckpointStore& store, const std::string& path) {
  SmallTrainState run;
  HostMemoryDevice device;
  store.load(path, run.tensors, device);
  return run.content();
}

std::vector<int64_t> steps_of(const CheckpointStore& store) {
  std::vector<int64_t> steps;
  for (const auto& info : store.list()) steps.push_back(info.step);
  return steps;
}

std::vector<std::string> names_in(const std::string& directory) {
  return disk.list_directory(directory);
}

TEST(Checkpoint, RoundTripLeavesPaddingAlone) {
  const TempDirectory directory;
  CheckpointStore store(disk, directory / "runs/a/checkpoints/", {});
  SmallTrainState saved, loaded;
  saved.fill(1);
  loaded.fill(2);
  HostMemoryDevice device;
  store.save(state_at(1000), saved.tensors, device);
  const std::string path = directory / "runs/a/checkpoints/step_00001000";
  EXPECT_EQ(names_in(path),
            (std::vector<std::string>{"rank_00000_of_00001.safetensors", "state.json"}));
  ASSERT_EQ(store.latest_good(), path);

  const std::byte pad = loaded.tensors[0].tensor.data[3 * 4];
  const TrainState state = store.load(path, loaded.tensors, device);
  EXPECT_EQ(loaded.content(), saved.content());
  EXPECT_EQ(loaded.tensors[0].tensor.data[3 * 4], pad);
  EXPECT_EQ(state.step, 1000);
  EXPECT_EQ(state.cursor, 16000);
  EXPECT_EQ(state.seed, 0xFFFFFFFFFFFFFFF0u);
  EXPECT_EQ(state.tokens, 16000 * 128);
  EXPECT_EQ(state.config, state_at(1000).config);
  EXPECT_EQ(state.extra, state_at(1000).extra);
  EXPECT_EQ(store.read_state(path).step, 1000);
}

TEST(Checkpoint, TensorsAreSafetensorsOfLogicalShape) {
  const TempDirectory directory;
  CheckpointStore store(disk, directory.path(), {});
  save(store, 1, 1);
  const SafetensorsReader file(disk, directory / "step_00000001/rank_00000_of_00001.safetensors");
  EXPECT_EQ(file.at("model.embed.weight").description(), "F32 [5, 3]");
  EXPECT_EQ(file.at("model.norm.weight").description(), "BF16 [7]");
  EXPECT_EQ(file.at("counts").description(), "I32 [2, 2]");
  EXPECT_EQ(file.at("nothing").description(), "F32 [0, 4]");
  EXPECT_EQ(file.tensors().size(), 5u);
}

TEST(Checkpoint, NothingButStateRoundTrips) {
  const TempDirectory directory;
  CheckpointStore store(disk, directory.path(), {});
  HostMemoryDevice device;
  store.save({}, {}, device);
  const TrainState state = store.load(directory / "step_00000000", {}, device);
  EXPECT_EQ(state.step, 0);
  EXPECT_TRUE(state.config.is_null());
  EXPECT_TRUE(state.extra.is_null());
}

TEST(Checkpoint, NumbersAndTextsOfStateSurvive) {
  const TempDirectory directory;
  CheckpointStore store(disk, directory.path(), {});
  HostMemoryDevice device;
  constexpr double kInf = std::numeric_limits<double>::infinity();
  TrainState state = state_at(1);
  state.extra = {{"values", {1.0 / 3, 5e-324, -0.0, 1e308, kInf, -kInf, std::nan("")}},
                 {"big", std::numeric_limits<uint64_t>::max()},
                 {"window", nlohmann::json::array()},
                 {"text", "quote \" newline \n \xC3\xA9"}};
  state.config = {{"path", "not \xFF utf-8"}};
  store.save(state, {}, device);
  const TrainState found = store.read_state(directory / "step_00000001");
  const auto values = found.extra.at("values").get<std::vector<double>>();
  ASSERT_EQ(values.size(), 7u);
  EXPECT_EQ(values[0], 1.0 / 3);
  EXPECT_EQ(values[1], 5e-324);
  EXPECT_TRUE(values[2] == 0 && std::signbit(values[2]));
  EXPECT_EQ(values[3], 1e308);
  EXPECT_EQ(values[4], kInf);
  EXPECT_EQ(values[5], -kInf);
  EXPECT_TRUE(std::isnan(values[6]));
  EXPECT_EQ(found.extra.at("big"), state.extra.at("big"));
  EXPECT_EQ(found.extra.at("window"), state.extra.at("window"));
  EXPECT_EQ(found.extra.at("text"), state.extra.at("text"));
  EXPECT_EQ(found.config.at("path"), "not \xEF\xBF\xBD utf-8");
}

TEST(Checkpoint, LargeTensorsGoThroughBoundedStaging) {
  constexpr int64_t kBlock = int64_t{16} << 20;
  const TempDirectory directory;
  CheckpointStore store(disk, directory.path(), {});
  SmallTrainState saved, loaded;
  for (SmallTrainState* run : {&saved, &loaded}) {
    run->add("many_rows", DType::kBF16, 9, 1000001, 1000002, 2);  // 8 rows per block, and 1
    run->add("one_row", DType::kF32, 2, kBlock / 4 + 5, kBlock / 4 + 5, 2);
  }
  saved.fill(1);
  HostMemoryDevice device;
  store.save(state_at(1), saved.tensors, device);
  EXPECT_EQ(device.largest_copy, kBlock);
  EXPECT_EQ(device.downloads, 4 + 2 + 4);
  store.load(directory / "step_00000001", loaded.tensors, device);
  EXPECT_TRUE(loaded.content() == saved.content());
}

TEST(Checkpoint, ListsOnlyCommittedDirectories) {
  const TempDirectory directory;
  CheckpointStore store(disk, directory / "none", {});
  EXPECT_TRUE(store.list().empty());
  EXPECT_EQ(store.latest_good(), std::nullopt);
  for (const char* name : {"step_00000002", "step_123456789", "step_00000010", "step_00000003.tmp",
                           "step_00000004.deleting", "step_00000005.abandoned", "step_5",
                           "step_000000010", "step_-0000001", "step_", "step_0000000x",
                           "xstep_00000006", "step_00000007 ", "step_99999999999999999999"}) {
    disk.create_directories(directory / "none/" + name);
  }
  disk.create(directory / "none/step_00000008")->close();
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{2, 10, 123456789}));
}

TEST(Checkpoint, SavingTheSameStepReplacesIt) {
  const TempDirectory directory;
  CheckpointStore store(disk, directory.path(), {});
  save(store, 5, 1);
  save(store, 5, 2);
  EXPECT_EQ(loaded_content(store, directory / "step_00000005"), SmallTrainState::content_of(2));
  EXPECT_EQ(names_in(directory.path()), std::vector<std::string>{"step_00000005"});
}

// Killed between the two renames of a replacement: the old one still counts, and is restored by the
// next save even if that one fails.
TEST(Checkpoint, HalfReplacedStepStaysCommitted) {
  const TempDirectory directory;
  FaultFileSystem faulty(disk);
  CheckpointStore store(faulty, directory.path(), {});
  save(store, 10, 1);
  disk.rename(directory / "step_00000010", directory / "step_00000010.old");
  EXPECT_EQ(store.latest_good(), directory / "step_00000010.old");
  faulty.fail_at(4, Fault::kError);
  EXPECT_ERROR(save(store, 20, 2), "operation 4");
  EXPECT_EQ(store.latest_good(), directory / "step_00000010");
  EXPECT_EQ(loaded_content(store, directory / "step_00000010"), SmallTrainState::content_of(1));
}

TEST(Checkpoint, FileInTheWayIsAnErrorAndStays) {
  const TempDirectory directory;
  CheckpointStore store(disk, directory.path(), {});
  disk.create(directory / "step_00000005")->close();
  EXPECT_ERROR(save(store, 5, 1), directory / "step_00000005", "not a directory");
  EXPECT_EQ(names_in(directory.path()), std::vector<std::string>{"step_00000005"});
  disk.create(directory / "file")->close();
  CheckpointStore inside(disk, directory / "file", {});
  EXPECT_ERROR(save(inside, 5, 1), directory / "file", "not a directory");
}

// A run that was rolled back before a checkpoint and trains on must not find that checkpoint as the
// newest one again.
TEST(Checkpoint, StepsOfAnAbandonedContinuationAreSetAside) {
  const TempDirectory directory;
  CheckpointStore store(disk, directory.path(), {.keep_last = 2});
  save(store, 10, 1);
  save(store, 20, 2);
  {
    const CapturedLog log;
    save(store, 15, 3);
    EXPECT_TRUE(log.has("step_00000020: renamed to"));
  }
  EXPECT_EQ(store.latest_good(), directory / "step_00000015");
  save(store, 20, 4);
  save(store, 17, 5);
  EXPECT_EQ(names_in(directory.path()),
            (std::vector<std::string>{"step_00000015", "step_00000017", "step_00000020.abandoned",
                                      "step_00000020.abandoned.2"}));
  EXPECT_EQ(loaded_content(store, directory / "step_00000020.abandoned"),
            SmallTrainState::content_of(2));
  EXPECT_EQ(loaded_content(store, directory / "step_00000020.abandoned.2"),
            SmallTrainState::content_of(4));
}

// --- retention -----------------------------------------------------------------------------------

TEST(Retention, NeverRemovesTheNewestOrAMajor) {
  std::mt19937_64 random(1);
  const int64_t huge = std::numeric_limits<int64_t>::max();
  for (const int64_t keep_last :
       {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{3}, int64_t{7}, huge}) {
    for (const int64_t every : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{500}, huge}) {
      for (int64_t count = 0; count <= 12; ++count) {
        std::set<int64_t> steps;
        while (static_cast<int64_t>(steps.size()) < count)
          steps.insert(static_cast<int64_t>(random() % 20) * 250);
        std::vector<int64_t> shuffled(steps.begin(), steps.end());
        std::shuffle(shuffled.begin(), shuffled.end(), random);
        const std::vector<int64_t> pruned = steps_to_prune(shuffled, {keep_last, every});

        std::set<int64_t> left = steps;
        for (const int64_t step : pruned) {
          EXPECT_EQ(left.erase(step), 1u);
          EXPECT_FALSE(every > 0 && step % every == 0) << step;
        }
        // Exactly the majors and the newest keep_last remain.
        int64_t newer = static_cast<int64_t>(steps.size());
        for (const int64_t step : steps) {
          const bool kept =
              newer-- <= std::max<int64_t>(1, keep_last) || (every > 0 && step % every == 0);
          EXPECT_EQ(left.contains(step), kept) << step << " of " << count;
        }
      }
    }
  }
}

TEST(Retention, AppliesAfterEverySave) {
  const TempDirectory directory(test::memory_directory());
  CheckpointStore store(disk, directory.path(), {.keep_last = 3, .keep_every_steps = 500});
  disk.create_directories(directory / "notes");
  disk.create_directories(directory / "step_00000001.mine");
  for (int64_t step = 250; step <= 2000; step += 250) {
    save(store, step, step);
    EXPECT_EQ(store.latest_good(), store.list().back().path);
    EXPECT_EQ(store.list().back().step, step);
  }
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{500, 1000, 1500, 1750, 2000}));
  for (const auto& info : store.list()) {
    EXPECT_EQ(loaded_content(store, info.path), SmallTrainState::content_of(info.step));
  }
  EXPECT_TRUE(disk.is_directory(directory / "notes"));
  EXPECT_TRUE(disk.is_directory(directory / "step_00000001.mine"));
}

TEST(Retention, ThatKeepsNothingIsAnError) {
  EXPECT_ERROR(CheckpointStore(disk, "a", {.keep_last = 0}), "keep_last is 0", "at least 1");
  EXPECT_ERROR(CheckpointStore(disk, "a", {.keep_last = -1}), "keep_last is -1");
  EXPECT_ERROR(CheckpointStore(disk, "a", {.keep_every_steps = -5}), "keep_every_steps is -5");
}

// A directory may remain, for example if another machine has one of its files open.
TEST(Retention, WhatCannotBeRemovedIsInNoSavesWay) {
  const TempDirectory directory(test::memory_directory());
  FaultFileSystem busy(disk);
  busy.before_removal([](const std::string& path) {
    if (path.ends_with(".deleting")) throw error("{}: busy", path);
  });
  CheckpointStore store(busy, directory.path(), {.keep_last = 1});
  const CapturedLog log;
  for (const int64_t step : {10, 20, 30}) save(store, step, step);
  EXPECT_EQ(steps_of(store), std::vector<int64_t>{30});
  EXPECT_EQ(store.leftovers().size(), 2u);
  EXPECT_TRUE(log.has("step_00000010.deleting: busy")) << log.text();
  busy.before_removal({});
  store.clear_leftovers();
  EXPECT_TRUE(store.leftovers().empty());
}

// hold() is called after every step; removing a large checkpoint takes longer.
TEST(Retention, HoldDoesNotWaitForARemoval) {
  const TempDirectory directory(test::memory_directory());
  FaultFileSystem slow(disk);
  std::promise<void> removes, may_go_on;
  slow.before_removal([&](const std::string& path) {
    if (!path.ends_with(".deleting")) return;
    removes.set_value();
    may_go_on.get_future().wait();
  });
  CheckpointStore store(slow, directory.path(), {.keep_last = 1});
  save(store, 10, 10);
  std::thread saves([&] { save(store, 20, 20); });
  removes.get_future().wait();
  store.hold({20});
  may_go_on.set_value();
  saves.join();
  EXPECT_EQ(steps_of(store), std::vector<int64_t>{20});
}

// --- failures at any operation of a save ---------------------------------------------------------

struct Scenario {
  const char* name;
  std::vector<int64_t> before;  // steps saved, with their own number as pattern
  int64_t step;                 // saved with the pattern 99 while the file system fails
  int64_t keep_last;
};

class FailingSave : public testing::TestWithParam<std::tuple<Scenario, Fault>> {
 protected:
  static constexpr int64_t kPattern = 99;

  // Every listed checkpoint can be loaded, and holds the data saved at that step.
  static void expect_all_good(const CheckpointStore& store, int64_t failed_step) {
    ASSERT_FALSE(store.list().empty());
    for (const auto& info : store.list()) {
      const std::string content = loaded_content(store, info.path);
      const bool is_new =
          info.step == failed_step && content == SmallTrainState::content_of(kPattern);
      EXPECT_TRUE(is_new || content == SmallTrainState::content_of(info.step)) << info.path;
    }
    EXPECT_EQ(store.latest_good(), store.list().back().path);
  }

  static void expect_recovers(const std::string& directory, const Scenario& scenario) {
    FaultFileSystem quick(disk);
    CheckpointStore store(quick, directory, {scenario.keep_last});
    save(store, scenario.step, kPattern);
    EXPECT_EQ(store.list().back().step, scenario.step);
    EXPECT_EQ(loaded_content(store, store.list().back().path),
              SmallTrainState::content_of(kPattern));
    for (const std::string& name : names_in(directory)) {
      EXPECT_TRUE(name.find('.') == std::string::npos ||
                  name.find(".abandoned") != std::string::npos)
          << name;
    }
  }
};

TEST_P(FailingSave, LosesNothingThatWasCommitted) {
  const auto& [scenario, fault] = GetParam();
  const CapturedLog quiet;
  bool reached_the_end = false;
  for (int64_t n = 1; !reached_the_end; ++n) {
    ASSERT_LT(n, 100);
    const TempDirectory directory(test::memory_directory());
    FaultFileSystem faulty(disk);
    CheckpointStore store(faulty, directory.path(), {scenario.keep_last});
    for (const int64_t step : scenario.before) save(store, step, step);
    faulty.fail_at(n, fault);
    bool threw = false;
    try {
      save(store, scenario.step, kPattern);
    } catch (const Error&) {
      threw = true;
    }
    reached_the_end = !faulty.broke();
    SCOPED_TRACE(fmt::format("operation {}", n));

    const CheckpointStore after(disk, directory.path(), {scenario.keep_last});
    expect_all_good(after, scenario.step);
    if (HasFatalFailure()) return;
    if (!threw) {
      EXPECT_EQ(after.list().back().step, scenario.step);
      EXPECT_EQ(loaded_content(after, after.list().back().path),
                SmallTrainState::content_of(kPattern));
    }
    if (fault == Fault::kError || fault == Fault::kShortWrite) {
      faulty.work();
      save(store, scenario.step, kPattern);  // the same process continues
    }
    expect_recovers(directory.path(), scenario);
  }
}

TEST_P(FailingSave, SurvivesAPowerCut) {
  const auto& [scenario, fault] = GetParam();
  const CapturedLog quiet;
  for (const auto renames : {UnsyncedRenames::kKept, UnsyncedRenames::kUndone}) {
    bool reached_the_end = false;
    for (int64_t n = 1; !reached_the_end; ++n) {
      const TempDirectory directory(test::memory_directory());
      FaultFileSystem faulty(disk);
      CheckpointStore store(faulty, directory / "runs/checkpoints", {scenario.keep_last});
      for (const int64_t step : scenario.before) save(store, step, step);
      faulty.fail_at(n, fault);
      bool threw = false;
      try {
        save(store, scenario.step, kPattern);
      } catch (const Error&) {
        threw = true;
      }
      reached_the_end = !faulty.broke();
      faulty.drop_unsynced(renames);
      SCOPED_TRACE(fmt::format("operation {}, unsynced renames {}", n,
                               renames == UnsyncedRenames::kKept ? "kept" : "undone"));
      const CheckpointStore after(disk, directory / "runs/checkpoints", {scenario.keep_last});
      expect_all_good(after, scenario.step);
      if (HasFatalFailure()) return;
      if (!threw) {
        EXPECT_EQ(after.list().back().step, scenario.step);
      }
      expect_recovers(directory / "runs/checkpoints", scenario);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Everywhere, FailingSave,
                         testing::Combine(testing::Values(Scenario{"next", {10}, 20, 1},
                                                          Scenario{"replaced", {10}, 10, 1},
                                                          Scenario{"went_back", {10, 20}, 15, 2}),
                                          testing::Values(Fault::kError, Fault::kShortWrite,
                                                          Fault::kStop, Fault::kStopShort)),
                         [](const auto& test) {
                           return fmt::format("{}_{}", std::get<0>(test.param).name,
                                              name_of(std::get<1>(test.param)));
                         });

// The very first checkpoint of a run: no other precedes it, and it survives a power cut after it.
TEST(Checkpoint, FirstCheckpointOfARunIsDurableWhenSaved) {
  for (const auto renames : {UnsyncedRenames::kKept, UnsyncedRenames::kUndone}) {
    const TempDirectory directory(test::memory_directory());
    FaultFileSystem faulty(disk);
    CheckpointStore store(faulty, directory / "runs/a/checkpoints", {});
    save(store, 10, 1);
    faulty.drop_unsynced(renames);
    EXPECT_EQ(loaded_content(store, store.latest_good().value_or("none")),
              SmallTrainState::content_of(1));
  }
}

TEST(Checkpoint, RemovesItsTemporaryDirectoryWhenTheDiskIsFull) {
  const TempDirectory directory(test::memory_directory());
  FaultFileSystem faulty(disk);
  CheckpointStore store(faulty, directory.path(), {});
  faulty.fail_at(4, Fault::kShortWrite);
  EXPECT_ERROR(save(store, 10, 1), "operation 4");
  EXPECT_TRUE(names_in(directory.path()).empty());
}

}  // namespace
}  // namespace mpt
