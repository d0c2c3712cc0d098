// Numbers for people, and the progress lines of a log (standard error is no terminal here).
#include "core/progress.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "core/text/units.h"

namespace mpt {
namespace {

TEST(Format, Duration) {
  EXPECT_EQ(format_duration(0), "0s");
  EXPECT_EQ(format_duration(42.4), "42s");
  EXPECT_EQ(format_duration(59.4), "59s");
  EXPECT_EQ(format_duration(59.5), "1m00s");
  EXPECT_EQ(format_duration(185), "3m05s");
  EXPECT_EQ(format_duration(3599.5), "1h00m");
  EXPECT_EQ(format_duration(2 * 3600 + 7 * 60), "2h07m");
  EXPECT_EQ(format_duration(86400 * 3 + 4 * 3600), "3d04h");
  for (const double unknown : {-1.0, 1e300, double(INFINITY), double(NAN)})
    EXPECT_EQ(format_duration(unknown), "?") << unknown;
}

TEST(Format, Count) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(950), "950");
  EXPECT_EQ(format_count(1000), "1.0k");
  EXPECT_EQ(format_count(1500), "1.5k");
  EXPECT_EQ(format_count(12.3e6), "12.3M");
  EXPECT_EQ(format_count(4e9), "4.00G");
  EXPECT_EQ(format_count(13.1e12), "13100.00G");
}

TEST(Format, CountsAreNeverRoundedToAThousand) {
  EXPECT_EQ(format_count(999.6), "1.0k");
  EXPECT_EQ(format_count(999960), "1.0M");
  EXPECT_EQ(format_count(999.96e6), "1.00G");
  EXPECT_EQ(format_count(999.4), "999");
  EXPECT_EQ(format_count(999940), "999.9k");
}

TEST(ProgressLine, TheBarTakesWhatTextsLeave) {
  const ProgressLine line{"nano", 0.5, 185, "loss 3.21"};
  EXPECT_EQ(progress_line(line, 60),
            "nano [==========>          ]  50.0% | 3m05s left | loss 3.21");
  EXPECT_EQ(progress_line(line, 200).size(), 4u + 3 + 40 + 32);
  EXPECT_EQ(progress_line(line, 40), "nano  50.0% | 3m05s left | loss 3.21");
  EXPECT_EQ(progress_line(line, 20), "nano  50.0% | 3m05s ");
  EXPECT_EQ(progress_line(line, 0), "");
  EXPECT_EQ(progress_line({"\u00e9t\u00e9", 1, 0}, 2), "\u00e9");
  for (int64_t columns = 0; columns < 120; ++columns)
    EXPECT_LE(int64_t(progress_line(line, columns).size()), columns);
}

TEST(Columns, ThoseOfTheHighestRankGoFirst) {
  const std::vector<Column> columns{{"step 1", 0}, {"lr 2", 2}, {"loss 3", 1}};
  EXPECT_EQ(columns_that_fit(columns, 22), "step 1 | lr 2 | loss 3");
  EXPECT_EQ(columns_that_fit(columns, 21), "step 1 | loss 3");
  EXPECT_EQ(columns_that_fit(columns, 14), "step 1");
  EXPECT_EQ(columns_that_fit(columns, -5), "step 1");
}

TEST(Format, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(1.5 * 1024 * 1024), "1.5 MiB");
  EXPECT_EQ(format_bytes(2.25 * 1024 * 1024 * 1024), "2.25 GiB");
  EXPECT_EQ(format_bytes(1024.0 * 1024 - 1), "1.0 MiB");
  EXPECT_EQ(format_bytes(1024.0 * 1024 * 1024 - 1), "1.00 GiB");
}

template <class F>
std::string shown(const F& f) {
  testing::internal::CaptureStderr();
  f();
  return testing::internal::GetCapturedStderr();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class ProgressInALog : public testing::Test {
 protected:
  void SetUp() override {
    if (Progress::on_terminal()) GTEST_SKIP() << "standard error is a terminal";
  }
};

TEST_F(ProgressInALog, ALineForEveryInterval) {
  const std::string text = shown([] {
    Progress progress({.label = "tokenize", .total = 200, .log_interval_s = 0});
    progress.update(50, "3 files");
    progress.update(100);
    progress.finish("done");
  });
  EXPECT_TRUE(contains(text, "tokenize  25.0% | ")) << text;
  EXPECT_TRUE(contains(text, " left | 3 files\n")) << text;
  EXPECT_TRUE(contains(text, "tokenize  50.0% | ")) << text;
  EXPECT_TRUE(contains(text, " | done\n")) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
  EXPECT_FALSE(contains(text, "\r")) << "no terminal control in a log";
}

TEST_F(ProgressInALog, NothingBeforeTheFirstInterval) {
  EXPECT_EQ(shown([] {
              Progress progress({.label = "short", .total = 3, .log_interval_s = 1000});
              for (int64_t i = 0; i <= 3; ++i) progress.update(i);
            }),
            "");
}

TEST_F(ProgressInALog, UnknownTotal) {
  const std::string text = shown([] {
    Progress progress({.label = "read", .log_interval_s = 0});
    progress.update(1500);
  });
  EXPECT_TRUE(contains(text, "read 1.5k | 0s elapsed\n")) << text;
}

TEST_F(ProgressInALog, MoreThanTheTotalIsAll) {
  const std::string text = shown([] {
    Progress progress({.label = "x", .total = 10, .log_interval_s = 0});
    progress.update(25);
  });
  EXPECT_TRUE(contains(text, "100.0%")) << text;
}

TEST_F(ProgressInALog, SilentAfterTheEnd) {
  const std::string text = shown([] {
    Progress progress({.label = "x", .total = 10, .log_interval_s = 0});
    progress.finish("end");
    progress.update(5, "late");
    progress.finish("again");
    progress.clear();
  });
  EXPECT_TRUE(contains(text, "end"));
  EXPECT_FALSE(contains(text, "late"));
  EXPECT_FALSE(contains(text, "again"));
}

TEST_F(ProgressInALog, ThreadsWriteWholeLines) {
  const std::string text = shown([] {
    Progress progress({.label = "x", .total = 100, .log_interval_s = 0});
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&progress] {
        for (int64_t i = 0; i < 25; ++i) progress.update(i, "note");
      });
  });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 100);
  for (size_t first = 0; first < text.size(); first = text.find('\n', first) + 1) {
    ASSERT_EQ(text.compare(first, 2, "x "), 0);
    ASSERT_EQ(text.compare(text.find('\n', first) - 4, 4, "note"), 0);
  }
}

}  // namespace
}  // namespace mpt
