// metrics.jsonl stays valid after any number, text, kill or full disk.
#include "train/reports/metrics_log.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/fault_file_system.h"
#include "support/files.h"
#include "support/temp_directory.h"

namespace mpt {
namespace {

using test::disk;

using nlohmann::json;
using nlohmann::ordered_json;
using test::Fault;
using test::FaultFileSystem;
using test::TempDirectory;
using test::UnsyncedRenames;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

void write_text(const std::string& path, std::string_view text) {
  const auto file = disk.create(path);
  file->append(bytes_of(text));
  file->close();
}

std::string line_of(const ordered_json& record) {
  const TempDirectory directory{test::memory_directory()};
  MetricsLog(disk, directory / "m").append(record);
  return disk.read_file(directory / "m");
}

TEST(MetricsLog, OneLineARecordInTheOrderOfItsKeys) {
  const TempDirectory directory{test::memory_directory()};
  MetricsLog log(disk, directory / "m");
  log.append({{"step", 1}, {"loss", 2.5}, {"a", true}});
  EXPECT_EQ(disk.read_file(directory / "m"),
            "{\"step\":1,\"loss\":2.5,\"a\":true}\n");  // already there
  log.append({{"step", 2}});
  log.append(json::object());
  EXPECT_EQ(disk.read_file(directory / "m"),
            "{\"step\":1,\"loss\":2.5,\"a\":true}\n{\"step\":2}\n{}\n");
}

TEST(MetricsLog, NumbersThatAreNotFinite) {
  EXPECT_EQ(line_of({{"loss", kNan}, {"step", 1}}),
            "{\"loss\":null,\"loss_nonfinite\":\"nan\",\"step\":1}\n");
  EXPECT_EQ(line_of({{"a", kInfinity}, {"b", -kInfinity}}),
            "{\"a\":null,\"a_nonfinite\":\"inf\",\"b\":null,\"b_nonfinite\":\"-inf\"}\n");
  EXPECT_EQ(line_of({{"a", ordered_json::array({1, kNan, -kInfinity})}}),
            "{\"a\":[1,null,null],\"a_nonfinite\":[null,\"nan\",\"-inf\"]}\n");
  EXPECT_EQ(line_of({{"a", ordered_json::array({1, 2.5})}}), "{\"a\":[1,2.5]}\n");
  ordered_json nested;
  nested["t"]["x"] = kNan;
  nested["list"] = ordered_json::array({ordered_json::object({{"y", kInfinity}})});
  EXPECT_EQ(line_of(nested),
            "{\"t\":{\"x\":null,\"x_nonfinite\":\"nan\"},\"list\":[{\"y\":null,\"y_nonfinite\":"
            "\"inf\"}]}\n");
  EXPECT_EQ(line_of({{"loss", nullptr}}), "{\"loss\":null}\n");
}

TEST(MetricsLog, TextsAreEscaped) {
  const std::string text = "C:\\\"quotes\"\n\t\x01 \xC3\xA9";
  const std::string line = line_of({{"path", text}});
  EXPECT_EQ(json::parse(line).at("path"), text);
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  EXPECT_EQ(json::parse(line_of({{"path", "a\xFFz"}})).at("path"), "a\xEF\xBF\xBDz");
  EXPECT_EQ(json::parse(line_of({{"k\xFF", 1}})).begin().key(), "k\xEF\xBF\xBD");
}

TEST(MetricsLog, DoublesRoundTrip) {
  std::vector<double> numbers{0.1, -0.0, 5e-324, 1.7976931348623157e308, 1e22, double(0.1f)};
  std::mt19937_64 random(1);
  while (numbers.size() < 2000) {
    const double number = std::bit_cast<double>(random());
    if (std::isfinite(number)) numbers.push_back(number);
  }
  const auto read = json::parse(line_of({{"x", numbers}})).at("x").get<std::vector<double>>();
  ASSERT_EQ(read.size(), numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint64_t>(read[i]), std::bit_cast<uint64_t>(numbers[i])) << numbers[i];
  }
}

TEST(MetricsLog, OnlyObjectsAreRecords) {
  const TempDirectory directory{test::memory_directory()};
  MetricsLog log(disk, directory / "m");
  EXPECT_THROW(log.append(ordered_json::array({1, 2})), LogicError);
  EXPECT_THROW(log.append(nullptr), LogicError);
  EXPECT_EQ(disk.file_size(directory / "m"), 0);
}

TEST(MetricsLog, TornLastLineIsCutOffWhereverItIsTorn) {
  const TempDirectory directory{test::memory_directory()};
  const std::string path = directory / "m";
  const std::string whole = "{\"step\":1}\n{\"step\":2}\n";
  for (size_t length = 0; length <= whole.size(); ++length) {
    write_text(path, whole.substr(0, length));
    const size_t kept = length < 11 ? 0 : length < 22 ? 11 : 22;
    MetricsLog log(disk, path);
    log.append({{"step", 3}});
    EXPECT_EQ(disk.read_file(path), whole.substr(0, kept) + "{\"step\":3}\n") << length;
  }
}

TEST(MetricsLog, TornLineLongerThanOnePieceOfTheSearch) {
  const TempDirectory directory{test::memory_directory()};
  const std::string path = directory / "m";
  for (const size_t tail : {65535, 65536, 65537, 200000}) {
    write_text(path,
               "{\"step\":1}\n" + std::string(tail, '\0'));  // zeros: as left by a power failure
    const MetricsLog log(disk, path);
    EXPECT_EQ(disk.read_file(path), "{\"step\":1}\n") << tail;
  }
  write_text(path, std::string(150000, 'x'));
  const MetricsLog log(disk, path);
  EXPECT_EQ(disk.file_size(path), 0);
}

TEST(MetricsLog, FullDiskLeavesNoHalfLine) {
  const TempDirectory directory{test::memory_directory()};
  FaultFileSystem faulty(disk);
  MetricsLog log(faulty, directory / "m");
  log.append({{"step", 1}});
  faulty.fail_at(1, Fault::kShortWrite);
  EXPECT_ERROR(log.append({{"step", 2}}), "operation 1");
  EXPECT_EQ(disk.read_file(directory / "m"), "{\"step\":1}\n");
  log.append({{"step", 3}});
  EXPECT_EQ(disk.read_file(directory / "m"), "{\"step\":1}\n{\"step\":3}\n");
}

TEST(MetricsLog, HalfLineThatCouldNotBeCutIsCutBeforeTheNext) {
  const TempDirectory directory{test::memory_directory()};
  FaultFileSystem faulty(disk);
  MetricsLog log(faulty, directory / "m");
  log.append({{"step", 1}});
  faulty.fail_at(1, Fault::kStopShort);
  EXPECT_ERROR(log.append({{"step", 2}}), "operation 1");
  EXPECT_EQ(disk.read_file(directory / "m"), "{\"step\":1}\n{\"ste");
  faulty.work();
  faulty.fail_at(0, Fault::kNone);
  log.append({{"step", 3}});
  EXPECT_EQ(disk.read_file(directory / "m"), "{\"step\":1}\n{\"step\":3}\n");
}

TEST(MetricsLog, SyncedLinesSurviveAPowerCut) {
  const TempDirectory directory{test::memory_directory()};
  FaultFileSystem faulty(disk);
  MetricsLog log(faulty, directory / "m");
  log.append({{"step", 1}});
  log.sync();
  log.append({{"step", 2}});
  faulty.drop_unsynced(UnsyncedRenames::kUndone);
  EXPECT_EQ(disk.read_file(directory / "m"), "{\"step\":1}\n");
}

TEST(MetricsLog, PathsItCannotUse) {
  const TempDirectory directory{test::memory_directory()};
  EXPECT_ERROR(MetricsLog(disk, directory.path()), directory.path(), "is a directory");
  EXPECT_ERROR(MetricsLog(disk, directory / "none/m"), directory / "none/m", "No such file");
}

TEST(ReadMetrics, LastRecordOfAStepCounts) {
  const TempDirectory directory{test::memory_directory()};
  write_text(directory / "m", "{\"step\":1,\"loss\":1}\n{\"step\":2}\n{\"step\":1,\"loss\":5}\n");
  const auto records = read_metrics(disk, directory / "m");
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records.at(1).at("loss"), 5);
}

// Killed at step 5, resumed from the checkpoint of step 3, now at step 4: the old steps 4 and 5 are
// void.
TEST(ReadMetrics, ResumeReplacesLaterSteps) {
  const TempDirectory directory{test::memory_directory()};
  {
    MetricsLog log(disk, directory / "m");
    for (int step = 1; step <= 5; ++step) log.append({{"step", step}, {"run", 1}});
  }
  MetricsLog log(disk, directory / "m");
  log.mark_resume(3);
  log.append({{"event", "note"}, {"text", "no step"}});
  log.append({{"step", 4}, {"run", 2}});
  const auto records = read_metrics(disk, directory / "m");
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(records.at(3).at("run"), 1);
  EXPECT_EQ(records.at(4).at("run"), 2);
}

TEST(ReadMetrics, IgnoresATornTailAndRefusesDamage) {
  const TempDirectory directory{test::memory_directory()};
  const std::string path = directory / "m";
  write_text(path, "{\"step\":1}\n{\"step\":2");
  EXPECT_EQ(read_metrics(disk, path).size(), 1u);
  write_text(path, "");
  EXPECT_TRUE(read_metrics(disk, path).empty());
  write_text(path, "{\"step\":1}\n{\"step\":\n");
  EXPECT_ERROR(read_metrics(disk, path), path, "line 2", "not valid JSON");
  write_text(path, "[1]\n");
  EXPECT_ERROR(read_metrics(disk, path), path, "line 1", "not a JSON object");
  for (const char* line :
       {"{}", "{\"step\":1.5}", "{\"step\":-1}", "{\"step\":\"1\"}", "{\"event\":\"resume\"}"}) {
    write_text(path, std::string(line) + "\n");
    EXPECT_ERROR(read_metrics(disk, path), path, "line 1", "\"step\" is missing");
  }
  EXPECT_ERROR(read_metrics(disk, directory / "none"), directory / "none", "No such file");
}

TEST(ReadMetrics, LinesAcrossPiecesOfTheFile) {
  const TempDirectory directory{test::memory_directory()};
  std::string text;
  for (int step = 0; step < 3; ++step) {
    text += fmt::format("{{\"step\":{},\"pad\":\"{}\"}}\n", step, std::string(700000, 'p'));
  }
  write_text(directory / "m", text);
  EXPECT_EQ(read_metrics(disk, directory / "m").size(), 3u);
}

}  // namespace
}  // namespace mpt
