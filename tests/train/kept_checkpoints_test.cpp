// The checkpoints a run keeps.
#include <atomic>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>

#include "checkpoint/checkpoint_store.h"
#include "config/run_paths.h"
#include "support/temp_directory.h"
#include "support/tiny_run.h"

namespace mpt::test {
namespace {

using Overrides = std::vector<std::string>;

class KeptCheckpoints : public testing::Test {
 protected:
  void SetUp() override { write_tiny_data(directory_.path()); }
  [[nodiscard]] RunConfig config(const Overrides& overrides) const {
    return tiny_config(directory_.path(), "run", overrides);
  }
  static std::vector<int64_t> steps_of(const RunConfig& config) {
    std::vector<int64_t> steps;
    for (const CheckpointInfo& info :
         CheckpointStore(posix_file_system(), checkpoint_directory(config), {}).list())
      steps.push_back(info.step);
    return steps;
  }
  TempDirectory directory_{memory_directory()};
};

TEST_F(KeptCheckpoints, AreTheLastAndEverySoManySteps) {
  for (const char* const async : {"true", "false"}) {
    const RunConfig run =
        config({"checkpoint.every_steps=2", "checkpoint.keep_last=2",
                "checkpoint.keep_every_steps=8", std::string("checkpoint.async=") + async});
    posix_file_system().remove_tree(run_directory(run));
    train(run);
    EXPECT_EQ(steps_of(run), (std::vector<int64_t>{8, 16, 22, 24})) << async;
  }
}

// The command of the first checkpoint waits until the last step is saved; without it, its
// checkpoint would be gone by then.
TEST_F(KeptCheckpoints, ACheckpointThatACommandReadsStays) {
  const std::string go = directory_ / "go", seen = directory_ / "seen";
  const RunConfig run =
      config({"train.steps=4", "checkpoint.keep_last=1",
              fmt::format("checkpoint.on_commit=while [ ! -e {0} ]; do sleep 0.02; done; "
                          "ls $MPRETRAIN_CHECKPOINT/state.json >> {1}",
                          go, seen)});
  std::atomic<bool> ended = false;
  std::thread releases([&] {
    while (!posix_file_system().exists(checkpoint_path(run, 4)) && !ended)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::ofstream(go) << "on";
  });
  train(run);
  ended = true;
  releases.join();
  EXPECT_EQ(posix_file_system().read_file(seen),
            checkpoint_path(run, 1) + "/state.json\n" + checkpoint_path(run, 4) + "/state.json\n");
  EXPECT_EQ(steps_of(run), std::vector<int64_t>{4});
}

}  // namespace
}  // namespace mpt::test
