// Messages that are not errors: threads, resumed runs, single tokens; and consistency of the
// commands shown in README.
#include <sstream>

#include "cli/bad_input_world.h"
#include "config/run_config.h"
#include "support/files.h"

namespace mpt::test {
namespace {

// Returns the lines that contain a text.
std::vector<std::string> lines_with(const std::string& text, const std::string& part) {
  std::vector<std::string> found;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    if (has(line, part)) found.push_back(line);
  return found;
}

class Messages : public BadInput {
 protected:
  ProgramResult run(const Arguments& arguments,
                    const std::map<std::string, std::string>& env = {}) {
    ProgramResult result = run_program(arguments, {.cwd = scene_.path(), .env = env});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result;
  }
  Scene scene_{*world_};
};

TEST_F(Messages, ThreadsAreThoseOfTheEnvironment) {
  const Arguments all{"plan", "--config", "config.json", "--set", "device.threads=0"};
  const auto device = [&](const std::string& wanted) {
    return run(all, {{"OMP_NUM_THREADS", wanted}}).out;
  };
  EXPECT_TRUE(has(device("1"), ", 1 thread\n"));
  EXPECT_TRUE(has(device("3"), ", 3 threads\n"));
  EXPECT_TRUE(has(device("3,2"), ", 3 threads\n"));
  EXPECT_FALSE(has(device("0"), ", 0 threads"));
  const Arguments two{"plan", "--config", "config.json", "--set", "device.threads=2"};
  EXPECT_TRUE(has(run(two, {{"OMP_NUM_THREADS", "1"}}).out, ", 2 threads\n"));
}

TEST_F(Messages, WhatAltersNothingIsNoWarning) {
  const ProgramResult result =
      run({"--config", "config.json", "--set", "checkpoint.every_steps=1", "--set",
           "log.every_steps=2", "--set", "eval.every_steps=3", "--resume", "latest"});
  EXPECT_EQ(lines_with(result.err, "resume: ").size(), 3u) << result.err;
  EXPECT_FALSE(has(result.err, "warning: resume")) << result.err;
}

TEST_F(Messages, AnotherLengthIsToldInOneLine) {
  const ProgramResult result =
      run({"--config", "config.json", "--set", "train.steps=8", "--resume", "latest"});
  const std::vector<std::string> lines = lines_with(result.err, "resume: ");
  ASSERT_EQ(lines.size(), 1u) << result.err;
  EXPECT_TRUE(has(lines[0], "the run length changed from 4 to 8 steps")) << lines[0];
  EXPECT_TRUE(has(lines[0], "at step 4 to ")) << lines[0];
  EXPECT_TRUE(has(lines[0], "at step 5")) << lines[0];
}

// Treated like a full disk, and not as a fatal signal.
TEST_F(Messages, AFileThatMayNotGrowIsNamed) {
  const ProgramResult result = run_program(
      {"-c", "ulimit -f 8; exec \"$0\" --config config.json --set name=limited", program_to_test()},
      {.cwd = scene_.path(), .program = "/bin/sh"});
  EXPECT_FALSE(result.signalled) << result.signal;
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_TRUE(has(result.err, "mpretrain: error: ")) << result.err;
  EXPECT_TRUE(has(result.err, "runs/limited/")) << result.err;
  EXPECT_TRUE(has(result.err, "File too large")) << result.err;
}

TEST_F(Messages, OneIsNoPlural) {
  const ProgramResult result = run({"generate", "--checkpoint", "runs/tiny", "--prompt", "abc",
                                    "--max-tokens", "1", "--threads", "1"});
  EXPECT_TRUE(has(result.err, "new: 1 token (")) << result.err;
}

TEST_F(Messages, DoNotLetAFileSteerTheTerminal) {
  const Arguments import{"import", "exported", "--output", "imported"};
  const std::string config = scene_.read("exported/tokenizer_config.json");
  nlohmann::json settings = nlohmann::json::parse(config);
  settings["eos_token"] = "\x1b[2J\u009b";
  scene_.write("exported/tokenizer_config.json", settings.dump());
  const ProgramResult warned = run(import);
  EXPECT_TRUE(has(warned.err, "warning: ")) << warned.err;
  EXPECT_TRUE(has(warned.err, "\uFFFD[2J\uFFFD")) << warned.err;
  EXPECT_FALSE(has(warned.err, "\x1b")) << warned.err;

  const std::string name = "\x1b[2J" + std::string(1 << 20, 'k');
  const std::string header =
      nlohmann::json{{name, {{"dtype", "F0"}, {"shape", {1}}, {"data_offsets", {0, 4}}}}}.dump();
  const uint64_t length = header.size();
  scene_.write("exported/model.safetensors",
               std::string(reinterpret_cast<const char*>(&length), 8) + header + "data");
  const ProgramResult refused =
      run_program({"import", "exported", "--output", "other"}, {.cwd = scene_.path()});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_TRUE(has(refused.err, "error: exported/model.safetensors")) << refused.err.substr(0, 1000);
  EXPECT_TRUE(has(refused.err, "\uFFFD[2J")) << refused.err.substr(0, 1000);
  EXPECT_FALSE(has(refused.err, "\x1b")) << refused.err.substr(0, 1000);
  EXPECT_LT(refused.err.size(), 20000u);
}

TEST_F(Messages, C4IsMadeWhereItsConfigsReadIt) {
  const std::string page = content_of(MPT_SOURCE_DIR "/docs/start/own_text.md"),
                    command = "scripts/prepare_c4.sh --source";
  const size_t at = page.find(command), output = page.find("--output ", at) + 9;
  ASSERT_NE(at, std::string::npos);
  const std::string directory = page.substr(output, page.find(' ', output) - output);
  const RunConfig config = load_run_config(MPT_SOURCE_DIR "/configs/350m_fp8.json");
  EXPECT_EQ(config.data.train, std::vector{CorpusConfig::of_texts({directory + "/train_*.bin"})});
  EXPECT_EQ(config.data.tokenizer, directory + "/tokenizer.model");
}

}  // namespace
}  // namespace mpt::test
