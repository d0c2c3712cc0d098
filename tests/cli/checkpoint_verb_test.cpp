// The verb `checkpoint`: its reports on good, damaged and foreign directories, and the files it
// removes.
#include <csignal>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/checkpoint_saver.h"
#include "checkpoint/checkpoint_store.h"
#include "core/io/directory_lock.h"
#include "core/io/file_system.h"
#include "support/files.h"
#include "support/rank_threads.h"
#include "support/run_program.h"
#include "support/temp_directory.h"

namespace mpt::test {
namespace {

using nlohmann::json;
using Arguments = std::vector<std::string>;

// Steps 100, 200 ... 500 of a run; the last is from two ranks.
class CheckpointVerb : public testing::Test {
 protected:
  CheckpointVerb() {
    for (int64_t step = 100; step <= 500; step += 100) save(step, step == 500 ? 2 : 1);
  }
  void save(int64_t step, int64_t ranks) const {
    RankThreads(ranks).run([&](Communicator& group) {
      HostMemoryDevice device;
      CheckpointStore store(disk, directory_ / "run/checkpoints", {.keep_last = 100});
      const StateOfRank mine(group);
      CheckpointSaver saver(store, device, group);
      saver.begin(
          {.state = state_at(step), .resting = mine.resting(), .changing = mine.changing()});
      saver.finish();
    });
  }
  [[nodiscard]] ProgramResult run(const Arguments& arguments) const {
    Arguments all{"checkpoint"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run_program(all, {.cwd = directory_.path()});
  }
  [[nodiscard]] std::string at(int64_t step) const {
    return fmt::format("{}/run/checkpoints/step_{:08}", directory_.path(), step);
  }
  [[nodiscard]] std::vector<std::string> left() const {
    return disk.list_directory(directory_ / "run/checkpoints");
  }
  void flip_byte(const std::string& path) const {
    std::string text = disk.read_file(path);
    text.back() = char(text.back() ^ 1);
    write_file_atomically(disk, path, bytes_of(text));
  }

  const TempDirectory directory_{memory_directory()};
};

TEST_F(CheckpointVerb, ListSaysWhatThereIs) {
  const ProgramResult result = run({"list", "run", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json list = json::parse(result.out);
  ASSERT_EQ(list.size(), 5u);
  EXPECT_EQ(list[4].at("path"), "run/checkpoints/step_00000500");
  EXPECT_EQ(list[4].at("step"), 500);
  EXPECT_EQ(list[4].at("tokens"), state_at(500).tokens);
  EXPECT_EQ(list[4].at("ranks"), 2);
  EXPECT_EQ(list[3].at("ranks"), 1);
  EXPECT_EQ(list[4].at("format_version"), 2);
  EXPECT_EQ(list[4].at("status"), "not_checked");
  EXPECT_EQ(list[4].at("problem"), nullptr);
  int64_t bytes = 0;
  for (const std::string& name : disk.list_directory(at(500)))
    bytes += disk.file_size(at(500) + "/" + name);
  EXPECT_EQ(list[4].at("bytes"), bytes);

  const ProgramResult table = run({"list", "run/checkpoints", "--verify"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_EQ(std::count(table.out.begin(), table.out.end(), '\n'), 6);
  EXPECT_TRUE(has(table.out, "good")) << table.out;
  const ProgramResult one = run({"list", "run/checkpoints/step_00000300/"});
  EXPECT_EQ(std::count(one.out.begin(), one.out.end(), '\n'), 2);
  EXPECT_TRUE(has(one.out, "not checked  run/checkpoints/step_00000300\n")) << one.out;
}

TEST_F(CheckpointVerb, VerifyNamesWhatIsWrongAndFails) {
  const ProgramResult good = run({"verify", "run"});
  EXPECT_EQ(good.exit_code, 0) << good.err;
  EXPECT_TRUE(has(good.out, "step_00000100: good, ")) << good.out;
  EXPECT_TRUE(has(good.out, "step_00000500: good, ")) << good.out;

  flip_byte(at(200) + "/rank_00000_of_00001.safetensors");
  disk.remove_file(at(500) + "/rank_00001_of_00002.safetensors");
  disk.remove_file(at(300) + "/state.json");
  disk.rename(at(400), at(450));
  const ProgramResult bad = run({"verify", "run"});
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_TRUE(has(bad.err, "mpretrain: error: run: 4 of 5 checkpoints are bad")) << bad.err;
  EXPECT_TRUE(has(bad.out, "step_00000100: good")) << bad.out;
  EXPECT_TRUE(has(bad.out,
                  "step_00000200: bad: "
                  "run/checkpoints/step_00000200/rank_00000_of_00001.safetensors was altered"))
      << bad.out;
  EXPECT_TRUE(has(
      bad.out, "step_00000300: bad: run/checkpoints/step_00000300: not a checkpoint: state.json"))
      << bad.out;
  EXPECT_TRUE(has(bad.out, "step_00000450: contains step 400")) << bad.out;
  EXPECT_TRUE(has(bad.out, "rank_00001_of_00002.safetensors is missing")) << bad.out;

  // A changed byte goes unnoticed unless bytes are read; it is then not called good.
  const json list = json::parse(run({"list", "run", "--json"}).out);
  EXPECT_EQ(list[1].at("status"), "not_checked");
  EXPECT_EQ(list[2].at("status"), "bad");
  EXPECT_EQ(list[2].at("step"), nullptr);
  EXPECT_EQ(run({"verify", at(200)}).exit_code, 1);
  EXPECT_EQ(run({"verify", at(300)}).exit_code, 1);
  EXPECT_EQ(run({"verify", at(100)}).exit_code, 0);
}

TEST_F(CheckpointVerb, PruneKeepsWhatItsRuleSays) {
  for (const char* left_by_crash : {"step_00000600.tmp", "step_00000050.deleting", "notes"})
    disk.create_directories(fmt::format("{}/run/checkpoints/{}", directory_.path(), left_by_crash));
  const std::vector<std::string> before = left();
  const ProgramResult dry =
      run({"prune", "run", "--keep-last", "1", "--keep-every", "200", "--dry-run"});
  EXPECT_EQ(dry.exit_code, 0) << dry.err;
  EXPECT_EQ(left(), before);
  EXPECT_FALSE(disk.exists(directory_ / "run/.lock"));
  for (const char* name :
       {"step_00000100", "step_00000300", "step_00000600.tmp", "step_00000050.deleting"})
    EXPECT_TRUE(has(dry.out, fmt::format("would remove run/checkpoints/{}\n", name))) << dry.out;
  EXPECT_TRUE(has(dry.out, "would keep run/checkpoints/step_00000200\n")) << dry.out;

  const ProgramResult result = run({"prune", "run", "--keep-last", "1", "--keep-every", "200"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(has(result.out, "removed run/checkpoints/step_00000100\n")) << result.out;
  EXPECT_EQ(left(),
            (std::vector<std::string>{"notes", "step_00000200", "step_00000400", "step_00000500"}));
  EXPECT_EQ(run({"verify", "run"}).exit_code, 0);
}

TEST_F(CheckpointVerb, PruneNeverRemovesTheNewestGoodOne) {
  disk.truncate(at(500) + "/rank_00000_of_00002.safetensors", 10);
  flip_byte(at(400) + "/rank_00000_of_00001.safetensors");
  EXPECT_EQ(run({"prune", "run", "--keep-last", "1"}).exit_code, 0);
  EXPECT_EQ(left(), (std::vector<std::string>{"step_00000300", "step_00000500"}));
  disk.remove_file(at(300) + "/state.json");
  const ProgramResult result = run({"prune", "run", "--keep-last", "1"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(has(result.err, "no intact checkpoint; nothing is removed")) << result.err;
  EXPECT_TRUE(has(result.err, "rank_00000_of_00002.safetensors has 10 bytes")) << result.err;
  EXPECT_EQ(left().size(), 2u);
}

TEST_F(CheckpointVerb, PruneIsRefusedWhileTheRunIsTraining) {
  const DirectoryLock lock(directory_ / "run");
  // On another disk, and under another name.
  std::filesystem::rename(directory_ / "run/checkpoints", directory_ / "elsewhere");
  std::filesystem::create_directory_symlink("../elsewhere", directory_ / "run/checkpoints");
  std::filesystem::create_directory_symlink("run/checkpoints", directory_ / "latest");
  for (const char* place : {"run", "run/checkpoints", "run/../run/checkpoints/"}) {
    const ProgramResult result = run({"prune", place, "--keep-last", "1"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_TRUE(has(result.err, "another run is writing here")) << result.err;
  }
  EXPECT_EQ(left().size(), 5u);
  EXPECT_EQ(run({"prune", "run", "--keep-last", "1", "--dry-run"}).exit_code, 0);
  const ProgramResult one = run({"prune", at(500), "--keep-last", "1"});
  EXPECT_EQ(one.exit_code, 1);
  EXPECT_TRUE(has(one.err, "is a single checkpoint; expected the directory of a run")) << one.err;
}

}  // namespace
}  // namespace mpt::test
