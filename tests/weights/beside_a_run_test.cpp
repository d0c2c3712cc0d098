// Readers during a run: it commits a checkpoint and removes an older one at any moment of the
// reading, and they switch to the newer one.
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_command.h"
#include "support/captured_log.h"
#include "support/expect_error.h"
#include "support/fault_file_system.h"
#include "support/files.h"
#include "support/model_checkpoint.h"
#include "support/temp_directory.h"
#include "weights/average.h"
#include "weights/convert.h"

namespace mpt::test {
namespace {

class BesideARun : public testing::Test {
 protected:
  void save(int64_t step) const {
    write_model_checkpoint(at(step), {.model = small_config(30), .step = step});
  }
  [[nodiscard]] std::string at(int64_t step) const {
    return fmt::format("{}/checkpoints/step_{:08}", run_, step);
  }
  // With steps 1 to `kept`, reads while the run saves the next step before the n-th look, for every
  // n. Returns how often it was saved during the reading.
  template <class Read>
  int64_t at_every_look(int64_t kept, const Read& read) const {
    bool saved = true;
    int64_t n = 0;
    while (saved) {
      saved = false;
      disk.remove_tree(run_);
      for (int64_t step = 1; step <= kept; ++step) save(step);
      FaultFileSystem fs(disk);
      int64_t looks = 0;
      fs.before_look([&] {
        if (looks++ != n) return;
        saved = true;
        save(kept + 1);
        disk.rename(at(1), at(1) + ".deleting");
        disk.remove_tree(at(1) + ".deleting");
      });
      read(fs);
      ++n;
    }
    return n;
  }

  TempDirectory directory_{memory_directory()};
  std::string run_ = directory_ / "run";
};

TEST_F(BesideARun, LoadingTakesANewerCheckpoint) {
  const CapturedLog log;
  const int64_t looks = at_every_look(1, [&](FileSystem& fs) {
    const LoadedModel model = load_model(fs, run_, kOneThread);
    EXPECT_TRUE(model.step == 1 || model.step == 2) << model.step;
    EXPECT_EQ(model.checkpoint, at(model.step));
  });
  EXPECT_GT(looks, 10);
  EXPECT_EQ(log.text(), "");
}

TEST_F(BesideARun, ConvertingTakesANewerCheckpoint) {
  at_every_look(1, [&](FileSystem& fs) {
    const ConvertedCheckpoint made = convert_checkpoint(
        fs, {.checkpoint = run_,
             .wanted = {.output = directory_ / "wide", .weights = WeightFormat::kF32},
             .overwrite = Overwrite::kYes});
    EXPECT_TRUE(made.step == 1 || made.step == 2) << made.step;
  });
}

TEST_F(BesideARun, AveragingTakesNewerCheckpoints) {
  at_every_look(2, [&](FileSystem& fs) {
    const AveragedCheckpoints made =
        average_checkpoints(fs, {.checkpoints = {run_},
                                 .last = 2,
                                 .wanted = {.output = directory_ / "mean"},
                                 .overwrite = Overwrite::kYes});
    EXPECT_EQ(made.checkpoints.size(), 2u);
  });
}

TEST_F(BesideARun, ARemovedCheckpointIsNotBad) {
  at_every_look(1, [&](FileSystem& fs) {
    const auto found = inspect_checkpoints(fs, run_, Scrutiny::kHashes);
    ASSERT_FALSE(found.empty());
    for (const CheckpointSummary& one : found) EXPECT_EQ(one.problem, "");
  });
}

// A checkpoint that was named explicitly, or is damaged and remains, is not replaced by another.
TEST_F(BesideARun, OthersAreErrors) {
  save(1);
  save(2);
  write_file_atomically(disk, at(2) + "/state.json", bytes_of("torn"));
  EXPECT_ERROR(load_model(disk, at(2), kOneThread), "step_00000002");
  disk.remove_tree(at(1));
  EXPECT_ERROR(load_model(disk, run_, kOneThread), "all of its 1 checkpoints are corrupt");
  EXPECT_ERROR(load_model(disk, at(1), kOneThread), "no such checkpoint or run directory");
}

}  // namespace
}  // namespace mpt::test
