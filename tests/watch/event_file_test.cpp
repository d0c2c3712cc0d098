// Event files equal those of TensorBoard's own library, and restarts are marked.
#include "watch/event_file.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "config/run_paths.h"
#include "support/files.h"
#include "support/temp_directory.h"
#include "support/tiny_run.h"

namespace mpt::test {
namespace {

// The check value of the catalogue of parametrised CRC algorithms, and RFC 3720 B.4.
TEST(EventFile, Checksums) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
}

// tests/golden/make_event_golden.py
TEST(EventFile, TheBytesOfTensorBoardsWriter) {
  const Scalars scalars{{"train/loss", 2.5},
                        {"train/zero", 0},
                        {"train/nan", std::numeric_limits<double>::quiet_NaN()},
                        {"validation/" + std::string(200, 'x'), -1e-30}};
  EXPECT_TRUE(version_event(1.5) + restart_event(1, 1.5) +
                  scalars_event(300, 1234567890.25, scalars) +
                  restart_event(1'000'000'000'000, 2) ==
              disk.read_file(MPT_SOURCE_DIR "/tests/golden/events.tfevents"));
}

TEST(EventFile, NumbersOfARecordByTag) {
  const auto record = nlohmann::ordered_json::parse(R"({
    "step": 3, "loss": 2.5, "lr": 1, "grad_norm": 2, "data_hash": "00ff", "skipped": true, "val_loss": 3.5,
    "val_tokens": 7, "validation": {"books": {"loss": 4.5, "bits_per_byte": 1.25}},
    "update_survival": {"bucket_edges": [1], "tensors": {
      "a": {"weights": [4, 6], "both": {"vanished": [1, 2], "moved": [0, 1]}},
      "unmoved": {"weights": [1, 0], "both": {"vanished": [0, 0], "moved": [0, 0]}}}},
    "fp8_scaling": {"x": {"scale": 2}}})");
  EXPECT_EQ(scalars_of(record), (Scalars{{"train/loss", 2.5},
                                         {"train/lr", 1},
                                         {"train/grad_norm", 2},
                                         {"validation/loss", 3.5},
                                         {"validation/tokens", 7},
                                         {"validation/books/loss", 4.5},
                                         {"validation/books/bits_per_byte", 1.25},
                                         {"updates_moved/a", 0.25},
                                         {"updates_moved/all", 0.25}}));
}

// A tag contains a copy of the set's name.
TEST(EventFile, ASetWithAVeryLongNameHasNoTags) {
  for (const size_t bytes : {180u, 200u}) {
    nlohmann::ordered_json record{{"step", 3}};
    record["validation"][std::string(bytes, 's')] = {{"loss", 4.5}, {"tokens", 1}};
    EXPECT_EQ(scalars_of(record).size(), bytes < 200 ? 2u : 0u);
  }
}

// A clock set back must not sort a later file before an earlier one.
TEST(EventFile, LaterFilesSortBehind) {
  const TempDirectory directory;
  const std::string ahead = directory / "events.out.tfevents.9000000000.mpretrain";
  disk.create(ahead);
  const EventFile second(disk, directory.path()), third(disk, directory.path());
  EXPECT_LT(ahead, second.path());
  EXPECT_LT(second.path(), third.path());
}

std::vector<std::string> event_files(const RunConfig& config) {
  std::vector<std::string> paths;
  for (const std::string& name : disk.list_directory(run_directory(config)))
    if (name.starts_with("events.")) paths.push_back(run_directory(config) + "/" + name);
  return paths;
}

TEST(EventFile, NoneUnlessAskedFor) {
  const TempDirectory directory;
  write_tiny_data(directory.path());
  const RunConfig config = tiny_config(directory.path(), "run");
  train(config);
  EXPECT_TRUE(event_files(config).empty());
}

TEST(EventFile, AFileForEachStartAndTheSameBits) {
  const TempDirectory directory;
  write_tiny_data(directory.path());
  const RunConfig off = tiny_config(directory.path(), "off");
  const RunConfig on = tiny_config(directory.path(), "on", {"log.tensorboard=true"});
  train(off);
  train(on);
  EXPECT_TRUE(tensors_at(off, kTinySteps) == tensors_at(on, kTinySteps));
  EXPECT_EQ(metrics_of(off), metrics_of(on));
  ASSERT_EQ(event_files(on).size(), 1u);
  const std::string first = disk.read_file(event_files(on).front());
  EXPECT_EQ(count(first, "train/loss"), kTinySteps);
  EXPECT_EQ(count(first, "validation/loss\x15"), 5);  // steps 5, 10, 15, 20 and 24
  train(on, checkpoint_path(on, 10));
  ASSERT_EQ(event_files(on).size(), 2u);
  EXPECT_EQ(disk.read_file(event_files(on).front()), first);
  const std::string second = disk.read_file(event_files(on).back());
  EXPECT_EQ(count(second, "train/loss"), kTinySteps - 10);
  // After the version, the restart at step 11: field 2, a number, then a SessionLog.
  EXPECT_EQ(count(second, std::string("\x10\x0b\x3a\x02\x08\x01", 6)), 1);
}

}  // namespace
}  // namespace mpt::test
