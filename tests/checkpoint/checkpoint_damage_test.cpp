// Damaged and foreign checkpoints: each is an Error that names the culprit, and nothing reaches the
// device.
#include <filesystem>
#include <functional>

#include <gtest/gtest.h>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/checkpoint_store.h"
#include "core/io/hash.h"
#include "core/io/safetensors.h"
#include "support/captured_log.h"
#include "support/expect_error.h"
#include "support/files.h"
#include "support/temp_directory.h"

namespace mpt {
namespace {

using test::disk;

using nlohmann::json;
using test::CapturedLog;
using test::HostMemoryDevice;
using test::SmallTrainState;
using test::state_at;
using test::TempDirectory;

void write_text(const std::string& path, std::string_view text) {
  const auto file = disk.create(path);
  file->append(bytes_of(text));
  file->close();
}

void change_byte(const std::string& path, size_t at) {
  std::string text = disk.read_file(path);
  text.at(at) = static_cast<char>(text[at] ^ 1);
  write_text(path, text);
}

// Changes state.json and renews its checksum, as only a program can.
void change_state(const std::string& directory, const std::function<void(json&)>& change) {
  json content = json::parse(disk.read_file(directory + "/state.json"));
  change(content);
  content.erase("checksum");
  content["checksum"] = hash_bytes(bytes_of(content.dump()));
  write_text(directory + "/state.json", content.dump());
}

// Steps 10 and 20; `bad` is the directory of 20.
class DamagedCheckpoint : public testing::Test {
 protected:
  DamagedCheckpoint() {
    run_.fill(1);
    for (const int64_t step : {10, 20}) store_.save(state_at(step), run_.tensors, device_);
    run_.fill(2);
  }
  const TempDirectory directory_{test::memory_directory()};
  CheckpointStore store_{disk, directory_.path(), {}};
  const std::string good = directory_ / "step_00000010";
  const std::string bad = directory_ / "step_00000020";
  const std::string tensors = bad + "/rank_00000_of_00001.safetensors";
  const std::string state = bad + "/state.json";
  SmallTrainState run_;
  HostMemoryDevice device_;

  // Expects loading it to fail with `culprit` and `defect` in the message, and to upload nothing.
  void expect_refused(const std::string& culprit, const std::string& defect) {
    const std::string before = run_.content();
    EXPECT_ERROR(store_.load(bad, run_.tensors, device_), culprit, defect);
    EXPECT_EQ(device_.uploads, 0);
    EXPECT_EQ(run_.content(), before);
  }
  // Also expects the previous one to be used instead, with a warning that gives the reason.
  void expect_skipped(const std::string& culprit, const std::string& defect) {
    expect_refused(culprit, defect);
    const CapturedLog log;
    EXPECT_EQ(store_.latest_good(), good);
    EXPECT_TRUE(log.has(bad)) << log.text();
    EXPECT_TRUE(log.has(defect)) << log.text();
  }
};

TEST_F(DamagedCheckpoint, TensorsCutOff) {
  disk.truncate(tensors, disk.file_size(tensors) - 1);
  expect_skipped(tensors, "were saved");
}
TEST_F(DamagedCheckpoint, TensorsEmpty) {
  disk.truncate(tensors, 0);
  expect_skipped(tensors, "has 0 bytes");
}
TEST_F(DamagedCheckpoint, ByteOfATensorFlipped) {
  change_byte(tensors, static_cast<size_t>(disk.file_size(tensors)) - 1);
  expect_skipped(tensors, "was altered");
}
TEST_F(DamagedCheckpoint, ByteOfTheHeaderFlipped) {
  change_byte(tensors, 20);
  expect_skipped(tensors, "was altered");
}
TEST_F(DamagedCheckpoint, TensorsMissing) {
  disk.remove_file(tensors);
  expect_skipped(tensors, "is missing");
}
TEST_F(DamagedCheckpoint, TensorsAreADirectory) {
  disk.remove_file(tensors);
  disk.create_directory(tensors);
  expect_skipped(tensors, "is a directory");
}
TEST_F(DamagedCheckpoint, StateMissing) {
  disk.remove_file(state);
  expect_skipped(bad, "state.json is missing");
}
TEST_F(DamagedCheckpoint, StateIsADirectory) {
  disk.remove_file(state);
  disk.create_directory(state);
  expect_skipped(state, "is a directory");
}
TEST_F(DamagedCheckpoint, StateEmpty) {
  write_text(state, "");
  expect_skipped(state, "not valid JSON");
}
TEST_F(DamagedCheckpoint, StateCutOff) {
  disk.truncate(state, disk.file_size(state) / 2);
  expect_skipped(state, "not valid JSON");
}
TEST_F(DamagedCheckpoint, StateGarbage) {
  write_text(state, std::string("\0\xFF\x80garbage", 10));
  expect_skipped(state, "not valid JSON");
}
TEST_F(DamagedCheckpoint, StateNotAnObject) {
  write_text(state, "[1, 2]");
  expect_skipped(state, "not a JSON object");
}
TEST_F(DamagedCheckpoint, StateNestedDeeply) {
  write_text(state, R"({"format": "mpretrain checkpoint", "version": 1, "x": )" +
                        std::string(1000000, '['));
  expect_skipped(state, "nested deeper than");
}
TEST_F(DamagedCheckpoint, StateOfSomethingElse) {
  write_text(state, R"({"epoch": 3})");
  expect_skipped(state, "not a checkpoint state");
}
TEST_F(DamagedCheckpoint, StateOfAnotherVersion) {
  change_state(bad, [](json& content) { content["version"] = 3; });
  expect_skipped(state, "has format version 3; this program reads versions 1 to 2");
}
TEST_F(DamagedCheckpoint, StateEditedByHand) {
  json content = json::parse(disk.read_file(state));
  content["cursor"] = 5;
  write_text(state, content.dump());
  expect_skipped(state, "was altered");
}
TEST_F(DamagedCheckpoint, StateWithoutSeal) {
  json content = json::parse(disk.read_file(state));
  content.erase("checksum");
  write_text(state, content.dump());
  expect_skipped(state, "was altered");
}
TEST_F(DamagedCheckpoint, StateWithoutAField) {
  change_state(bad, [](json& content) { content.erase("cursor"); });
  expect_skipped(state, "cursor");
}
TEST_F(DamagedCheckpoint, StateWithAFieldOfWrongType) {
  change_state(bad, [](json& content) { content["files"][0]["bytes"] = "many"; });
  expect_skipped(state, "not a checkpoint state");
}
// Each of these was once taken for an integer, some by arithmetic with an undefined result.
TEST_F(DamagedCheckpoint, StateWithNumbersThatAreNoIntegers) {
  const json intact = json::parse(disk.read_file(state));
  for (const json& number : {json(1e300), json(-1e300), json(1.5), json(true), json(UINT64_MAX)}) {
    for (const char* key : {"step", "cursor", "tokens"}) {
      change_state(bad, [&](json& content) { content = intact, content[key] = number; });
      expect_skipped(state, fmt::format("{} is {}; expected an integer", key, number.dump()));
    }
    change_state(bad,
                 [&](json& content) { content = intact, content["files"][0]["bytes"] = number; });
    expect_skipped(state, "bytes is");
  }
  for (const json& number : {json(1e300), json(-1), json(1.5), json("1")}) {
    change_state(bad, [&](json& content) { content = intact, content["seed"] = number; });
    expect_skipped(state, fmt::format("seed is {}; expected an integer", number.dump()));
  }
}
TEST_F(DamagedCheckpoint, StateThatNamesFilesElsewhere) {
  change_state(bad,
               [](json& content) { content["files"][0]["name"] = "../step_00000010/state.json"; });
  expect_skipped(state, "not a file name within the checkpoint");
}
TEST_F(DamagedCheckpoint, StateThatNamesAFileTwice) {
  change_state(bad, [](json& content) { content["files"].push_back(content["files"][0]); });
  expect_skipped(state, "lists the file 'rank_00000_of_00001.safetensors' twice");
}
TEST_F(DamagedCheckpoint, DirectoryOfAnotherStep) {
  std::filesystem::rename(bad, directory_ / "step_00000030");
  const CapturedLog log;
  EXPECT_EQ(store_.latest_good(), good);
  EXPECT_TRUE(log.has("it contains step 20")) << log.text();
}
TEST_F(DamagedCheckpoint, FilesThatAreNotSafetensors) {
  write_text(tensors, "hello, world");
  change_state(bad, [&](json& content) {
    content["files"][0]["bytes"] = 12;
    content["files"][0]["hash"] = hash_bytes(bytes_of("hello, world"));
  });
  expect_refused(tensors, "not a safetensors file");
}
TEST_F(DamagedCheckpoint, SameTensorsInTwoFiles) {
  std::filesystem::copy(tensors, bad + "/copy");
  change_state(bad, [](json& content) {
    content["files"].push_back(content["files"][0]);
    content["files"][1]["name"] = "copy";
  });
  expect_refused(bad + "/copy", "are also in");
}
TEST_F(DamagedCheckpoint, AllOfThem) {
  for (const std::string& path : {good, bad}) disk.remove_file(path + "/state.json");
  const CapturedLog log;
  EXPECT_EQ(store_.latest_good(), std::nullopt);
  EXPECT_TRUE(log.has(good) && log.has(bad));
}

TEST_F(DamagedCheckpoint, PathsThatAreNoCheckpoint) {
  EXPECT_ERROR(store_.load(directory_ / "none", run_.tensors, device_), directory_ / "none",
               "no such directory");
  EXPECT_ERROR(store_.load(state, run_.tensors, device_), state, "no such directory");
  EXPECT_ERROR(store_.load(directory_.path(), run_.tensors, device_), directory_.path(),
               "state.json is missing");
  EXPECT_ERROR((void)store_.read_state(directory_ / "none"), directory_ / "none",
               "no such directory");
  EXPECT_EQ(device_.uploads, 0);
}

// No change of a byte of state.json goes unnoticed unless it has no effect (one white space for
// another).
TEST_F(DamagedCheckpoint, AnyByteOfStateChanged) {
  const std::string text = disk.read_file(state);
  const json content = json::parse(text);
  for (size_t at = 0; at < text.size(); ++at) {
    std::string changed = text;
    changed[at] = static_cast<char>(changed[at] ^ (1 << at % 7));
    write_text(state, changed);
    try {
      (void)store_.read_state(bad);
    } catch (const Error& caught) {
      EXPECT_NE(std::string(caught.what()).find(state), std::string::npos);
      continue;
    }
    EXPECT_EQ(json::parse(changed), content) << "byte " << at;
  }
}

// --- another model's or optimizer's checkpoint ---------------------------------------------------

class ForeignCheckpoint : public DamagedCheckpoint {};

TEST_F(ForeignCheckpoint, TensorMissing) {
  run_.add("v/model.embed.weight", DType::kF32, 5, 3, 3, 2);
  expect_refused(bad, "has no tensor 'v/model.embed.weight'; this run needs it as F32 [5, 3]");
}
TEST_F(ForeignCheckpoint, TensorTooMany) {
  run_.tensors.erase(run_.tensors.begin() + 2);
  expect_refused(tensors,
                 "holds tensor 'm/model.embed.weight' (F32 [5, 3]), which this run does not have");
}
TEST_F(ForeignCheckpoint, TensorsTooMany) {
  run_.tensors.resize(2);
  expect_refused(tensors,
                 "holds tensor 'counts' (I32 [2, 2]), which this run does not have, and 2 more");
}
TEST_F(ForeignCheckpoint, OtherShape) {
  run_.tensors[0].tensor.cols = 4;
  expect_refused(tensors, "tensor 'model.embed.weight' is F32 [5, 3]; this run needs F32 [5, 4]");
}
TEST_F(ForeignCheckpoint, OtherRank) {
  run_.tensors[1].rank = 2;
  expect_refused(tensors, "tensor 'model.norm.weight' is BF16 [7]; this run needs BF16 [1, 7]");
}
TEST_F(ForeignCheckpoint, OtherTypeOfSameSize) {
  run_.tensors[2].tensor.dtype = DType::kI32;
  expect_refused(tensors, "tensor 'm/model.embed.weight' is F32 [5, 3]; this run needs I32 [5, 3]");
}
TEST_F(ForeignCheckpoint, PartMayBeLoadedAlone) {
  const std::string before = run_.content();
  const std::span part = std::span(run_.tensors).first(2);
  load_part_of_checkpoint(disk, bad, part, device_);
  EXPECT_EQ(device_.uploads, 2);
  const size_t bytes = 5 * 3 * 4 + 7 * 2;
  EXPECT_EQ(run_.content().substr(0, bytes), SmallTrainState::content_of(1).substr(0, bytes));
  EXPECT_EQ(run_.content().substr(bytes), before.substr(bytes));
}
TEST_F(ForeignCheckpoint, PartThatIsNotThere) {
  run_.tensors = {run_.tensors[0], {"lm_head.weight", run_.tensors[1].tensor, 1}};
  EXPECT_ERROR(load_part_of_checkpoint(disk, bad, run_.tensors, device_), bad,
               "no tensor 'lm_head.weight'");
  change_byte(tensors, 20);
  run_.tensors.pop_back();
  EXPECT_ERROR(load_part_of_checkpoint(disk, bad, run_.tensors, device_), tensors, "was altered");
  EXPECT_EQ(device_.uploads, 0);
}
TEST_F(ForeignCheckpoint, LoadingOneTensorTwiceIsABug) {
  run_.tensors.push_back(run_.tensors[0]);
  EXPECT_THROW(store_.load(bad, run_.tensors, device_), LogicError);
  EXPECT_THROW(store_.save(state_at(30), run_.tensors, device_), LogicError);
  EXPECT_EQ(store_.latest_good(), bad);
}

}  // namespace
}  // namespace mpt
