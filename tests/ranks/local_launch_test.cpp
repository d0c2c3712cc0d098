// Ranks that launch_locally() starts: what they are told, and what becomes of them all when one ends.
#include "ranks/local_launch.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/run_program.h"

namespace mpt {
namespace {

// Each rank runs `script`, by a shell.
test::ProgramResult run_script(const std::string& script, int ranks, int nodes = 1, int node = 0,
                               const std::map<std::string, std::string>& environment = {}) {
  return test::run_program({"run", std::to_string(ranks), std::to_string(nodes),
                            std::to_string(node), "/bin/sh", "-c", script},
                           {.timeout_s = 40, .env = environment, .program = MPT_RANK_CALLS});
}

std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::ranges::sort(lines);
  return lines;
}

constexpr const char* kPlace =
    "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR ${MASTER_PORT-unset}";

TEST(LocalLaunch, TellsEachRankItsPlace) {
  const test::ProgramResult result =
      run_script(kPlace, 3, 1, 0, {{"MASTER_ADDR", "elsewhere"}, {"MASTER_PORT", "1"}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(sorted_lines(result.out),
            (std::vector<std::string>{"0 3 0 3 127.0.0.1 unset", "1 3 1 3 127.0.0.1 unset",
                                      "2 3 2 3 127.0.0.1 unset"}));
}

TEST(LocalLaunch, NumbersTheRanksOfSeveralMachinesOn) {
  const test::ProgramResult result =
      run_script(std::string(kPlace) + " $MPT_MASTER_PORT $MPT_LAUNCH_ID", 2, 3, 1);
  EXPECT_EQ(sorted_lines(result.out),
            (std::vector<std::string>{"2 6 0 2 first.machine unset 29500 of seven",
                                      "3 6 1 2 first.machine unset 29500 of seven"}));
}

TEST(LocalLaunch, RanksMeetAtOnePortAndShareTheCores) {
  const auto told = [](const std::map<std::string, std::string>& environment) {
    const test::ProgramResult result =
        run_script("echo $MPT_MASTER_PORT $MPT_LAUNCH_ID $OMP_NUM_THREADS", 2, 1, 0, environment);
    const std::vector<std::string> lines = sorted_lines(result.out);
    EXPECT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines.front(), lines.back());
    return lines.front();
  };
  const std::string first = told({{"OMP_NUM_THREADS", ""}}), second = told({});
  EXPECT_NE(first.substr(first.find(' ')), second.substr(second.find(' ')));  // another run
  EXPECT_TRUE(told({{"OMP_NUM_THREADS", "7"}}).ends_with(" 7"));
}

TEST(LocalLaunch, StandardInputIsEmpty) {
  const test::ProgramResult result = run_script("cat; readlink /proc/self/fd/0", 1);
  EXPECT_EQ(result.out, "/dev/null\n");
}

TEST(LocalLaunch, ARankThatFailsEndsTheOthersAndItsStatusCounts) {
  const test::ProgramResult result = run_script(
      "trap 'echo told; exit 9' TERM; [ $RANK = 1 ] && exit 7; while :; do sleep 0.05; done", 3);
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_TRUE(result.out.ends_with("told\ntold\n")) << result.out;  // after the log
  EXPECT_NE(result.err.find("rank 1 of 3 (process "), std::string::npos) << result.err;
  EXPECT_TRUE(result.err.ends_with(") ended with exit code 7\n")) << result.err;
}

TEST(LocalLaunch, ARankThatDoesNotEndIsKilled) {
  const test::ProgramResult result =
      run_script("trap '' TERM; [ $RANK = 0 ] && kill -9 $$; while :; do sleep 0.05; done", 2);
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.exit_code, 128 + 9);
  EXPECT_NE(result.err.find("rank 0 of 2"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("was ended by signal 9 (Killed)"), std::string::npos) << result.err;
}

// A rank that hangs outlives the second SIGTERM by a second.
TEST(LocalLaunch, TheSecondSignalEndsARankThatHangs) {
  const test::ProgramResult result = run_script(
      "[ $RANK = 0 ] && { sleep 0.3; kill -TERM $PPID; sleep 0.3; kill -TERM $PPID; }; trap '' "
      "TERM;"
      " while :; do sleep 0.05; done",
      2);
  EXPECT_FALSE(result.timed_out);
  EXPECT_GE(result.exit_code, 128) << result.err;
}

// Ranks that stopped and saved have not failed, even if one has more to do.
TEST(LocalLaunch, StoppedRanksWaitForOneAnother) {
  const test::ProgramResult result =
      run_script("[ $RANK = 0 ] && sleep 3 && echo done; exit 75", 2);
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_EQ(result.out, "done\n");
  EXPECT_EQ(result.err, "\n");
}

TEST(LocalLaunch, AProgramThatIsNotThereIsNamed) {
  const test::ProgramResult result =
      test::run_program({"run", "2", "1", "0", "/no/such/program"}, {.program = MPT_RANK_CALLS});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("/no/such/program: cannot be started: No such file"), std::string::npos)
      << result.err;
}

}  // namespace
}  // namespace mpt
