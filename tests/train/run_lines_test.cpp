// Which steps have lines in the log, and records in metrics.jsonl.
#include <sstream>

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include "config/run_paths.h"
#include "support/temp_directory.h"
#include "support/tiny_run.h"

namespace mpt::test {
namespace {

// Returns the steps with a line ("step 7/24 | loss ...") in the log of a tiny run.
std::vector<int64_t> lines_of(const RunConfig& config) {
  std::ostringstream log;
  const auto before = spdlog::default_logger();
  const auto logger = std::make_shared<spdlog::logger>(
      "lines", std::make_shared<spdlog::sinks::ostream_sink_mt>(log));
  logger->set_pattern("%v");
  spdlog::set_default_logger(logger);
  train(config);
  spdlog::set_default_logger(before);
  std::vector<int64_t> steps;
  std::istringstream lines(log.str());
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("step ") && line.find("/24 | loss ") != std::string::npos)
      steps.push_back(std::stoll(line.substr(5)));
  EXPECT_EQ(read_metrics(posix_file_system(), metrics_path(config)).size(), size_t(kTinySteps));
  return steps;
}

class RunLines : public testing::Test {
 protected:
  RunLines() { write_tiny_data(directory_.path()); }
  std::vector<int64_t> with(const std::vector<std::string>& overrides) {
    return lines_of(tiny_config(directory_.path(), "run", overrides));
  }
  TempDirectory directory_;
};

// Steps 5, 10, 15 and 20 are evaluated.
TEST_F(RunLines, FirstLastAndEvaluatedOnesWhereTimeHasNotPassed) {
  EXPECT_EQ(with({"log.every_seconds=1e9"}), (std::vector<int64_t>{1, 5, 10, 15, 20, 24}));
}

TEST_F(RunLines, EveryStep) {
  EXPECT_EQ(with({"log.every_seconds=0", "eval.every_steps=0"}).size(), size_t(kTinySteps));
}

TEST_F(RunLines, EveryFewSteps) {
  EXPECT_EQ(with({"log.every_seconds=0", "log.every_steps=7", "eval.every_steps=0"}),
            (std::vector<int64_t>{1, 7, 14, 21, 24}));
}

TEST_F(RunLines, TimeThatPassed) {
  EXPECT_EQ(with({"log.every_seconds=1e-9", "log.every_steps=12", "eval.every_steps=0"}),
            (std::vector<int64_t>{1, 12, 24}));
}

}  // namespace
}  // namespace mpt::test
