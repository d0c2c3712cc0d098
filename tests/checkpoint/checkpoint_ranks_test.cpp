// Checkpoints written by several ranks: any number of ranks can load them, and a missing or
// duplicated element is an Error.
#include <filesystem>
#include <functional>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/checkpoint_parts.h"
#include "checkpoint/checkpoint_saver.h"
#include "checkpoint/checkpoint_state.h"
#include "core/io/hash.h"
#include "core/io/safetensors.h"
#include "support/captured_log.h"
#include "support/expect_error.h"
#include "support/files.h"
#include "support/rank_threads.h"
#include "support/temp_directory.h"

namespace mpt {
namespace {

using test::disk;

using nlohmann::json;
using test::CapturedLog;
using test::HostMemoryDevice;
using test::RankThreads;
using test::SmallTrainState;
using test::state_at;
using test::StateOfRank;
using test::TempDirectory;

void save_by(int64_t ranks, const std::string& directory, int64_t step, int64_t k) {
  RankThreads(ranks).run([&](Communicator& group) {
    HostMemoryDevice device;
    CheckpointStore store(disk, directory, {});
    StateOfRank mine(group);
    mine.fill(k);
    CheckpointSaver saver(store, device, group);
    saver.begin({.state = state_at(step), .resting = mine.resting(), .changing = mine.changing()});
    saver.finish();
  });
}

// --- any number of ranks to any other ------------------------------------------------------------

class ElasticCheckpoint : public testing::TestWithParam<int64_t> {};

TEST_P(ElasticCheckpoint, LoadsOnAnyNumberOfRanks) {
  const TempDirectory directory(test::memory_directory());
  save_by(GetParam(), directory.path(), 10, 1);
  const std::string path = directory / "step_00000010";
  EXPECT_EQ(std::ssize(disk.list_directory(path)), GetParam() + 1);
  for (const int64_t ranks : {1, 2, 3, 4, 7}) {
    RankThreads(ranks).run([&](Communicator& group) {
      HostMemoryDevice device;
      StateOfRank mine(group);
      mine.fill(2);
      EXPECT_EQ(verify_together(disk, path, group).step, 10);
      const TrainState state = load_verified_checkpoint(disk, path, mine.all(), device);
      EXPECT_EQ(state.cursor, state_at(10).cursor);
      EXPECT_EQ(mine.content(), StateOfRank::content_of(group, 1, 2));
    });
  }
  SmallTrainState whole;
  HostMemoryDevice device;
  load_checkpoint(disk, path, whole.tensors, device);
  EXPECT_EQ(whole.content(), SmallTrainState::content_of(1));
}
INSTANTIATE_TEST_SUITE_P(From, ElasticCheckpoint, testing::Values(1, 2, 3, 4, 16));

TEST(ElasticCheckpointFormat, WholeTensorsHaveTheirShapeAndSpansTheirNumbers) {
  const TempDirectory directory(test::memory_directory());
  save_by(2, directory.path(), 10, 1);
  const std::string path = directory / "step_00000010";
  EXPECT_EQ(disk.list_directory(path),
            (std::vector<std::string>{"rank_00000_of_00002.safetensors",
                                      "rank_00001_of_00002.safetensors", "state.json"}));
  const SafetensorsReader first(disk, path + "/rank_00000_of_00002.safetensors");
  const SafetensorsReader second(disk, path + "/rank_00001_of_00002.safetensors");
  EXPECT_EQ(first.at("model.embed.weight@0").description(), "F32 [7]");
  EXPECT_EQ(second.at("model.embed.weight@7").description(), "F32 [8]");
  EXPECT_EQ(first.at("counts").description(), "I32 [2, 2]");
  EXPECT_EQ(second.find("counts"), nullptr);
  const json state = json::parse(disk.read_file(path + "/state.json"));
  EXPECT_EQ(state.at("version"), 2);
  EXPECT_EQ(
      state.at("files")[1].at("spans")[0],
      (json{{"tensor", "model.embed.weight"}, {"shape", {5, 3}}, {"first", 7}, {"count", 8}}));
}

// Random cuts of random tensors: blocks are the elements in order, however they are cut.
TEST(ElasticCheckpointFormat, BlocksOfAPartAreItsElements) {
  std::mt19937_64 random(3);
  const auto draw = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  for (int i = 0; i < 500; ++i) {
    const int64_t rows = draw(1, 6), cols = draw(1, 9), stride = cols + draw(0, 3);
    std::vector<float> values(static_cast<size_t>(rows * stride), -1.0f);
    for (int64_t e = 0; e < rows * cols; ++e)
      values[static_cast<size_t>(e / cols * stride + e % cols)] = float(e);
    const Tensor t{reinterpret_cast<std::byte*>(values.data()), DType::kF32, rows, cols, stride};
    const int64_t first = draw(0, rows * cols), count = draw(0, rows * cols - first);
    HostMemoryDevice device;
    std::vector<float> found;
    for (const Tensor& block : blocks_of({{"t", t}, first, count})) {
      const size_t size = found.size();
      found.resize(size + static_cast<size_t>(block.elements()));
      device.download(block, reinterpret_cast<std::byte*>(found.data() + size));
    }
    ASSERT_EQ(std::ssize(found), count);
    for (int64_t e = 0; e < count; ++e) ASSERT_EQ(found[static_cast<size_t>(e)], float(first + e));
  }
  const Tensor t{nullptr, DType::kF32, 2, 3, 3};
  EXPECT_THROW(blocks_of({{"t", t}, 4, 3}), LogicError);
  EXPECT_THROW(blocks_of({{"t", t}, -1, 3}), LogicError);
}

// --- elements missing or duplicated --------------------------------------------------------------

class DamagedByRanks : public testing::Test {
 protected:
  DamagedByRanks() {
    save_by(3, directory_.path(), 10, 1);
    save_by(3, directory_.path(), 20, 2);
  }
  [[nodiscard]] std::string file(int64_t rank) const { return bad + "/" + rank_file_name(rank, 3); }

  // Changes state.json and renews its checksum, as only a program can.
  void change_state(const std::function<void(json&)>& change) const {
    const std::string path = bad + "/state.json";
    json content = json::parse(disk.read_file(path));
    content.erase("checksum");
    change(content);
    content["checksum"] = hash_bytes(bytes_of(content.dump()));
    write_file_atomically(disk, path, bytes_of(content.dump()));
  }
  // Replaces one of the files by another one, described by state.json.
  void replace_file(int64_t rank, const std::vector<StoredTensorInfo>& tensors,
                    const json& spans) const {
    SafetensorsWriter out(disk, file(rank), tensors);
    for (const StoredTensorInfo& tensor : tensors)
      out.append(std::vector<std::byte>(static_cast<size_t>(tensor.bytes())));
    const auto [bytes, hash] = out.finish();
    change_state([&, bytes = bytes, hash = hash](json& content) {
      json& entry = content["files"][static_cast<size_t>(rank)];
      entry["bytes"] = bytes;
      entry["hash"] = hash;
      entry["spans"] = spans;
    });
  }
  void expect_refused(const std::string& culprit, const std::string& defect) const {
    SmallTrainState run;
    HostMemoryDevice device;
    EXPECT_ERROR(load_checkpoint(disk, bad, run.tensors, device), culprit, defect);
    EXPECT_ERROR(load_verified_checkpoint(disk, bad, whole_parts(run.tensors), device), culprit,
                 defect);
    EXPECT_EQ(device.uploads, 0);
    expect_skipped(defect);
  }
  // On all ranks, with one warning.
  void expect_skipped(const std::string& defect) const {
    const CapturedLog log;
    RankThreads(2).run([&](Communicator& group) {
      const CheckpointStore store(disk, directory_.path(), {});
      EXPECT_EQ(store.latest_good(group), directory_ / "step_00000010");
    });
    EXPECT_TRUE(log.has(defect)) << log.text();
    EXPECT_EQ(log.text().find(defect), log.text().rfind(defect));
  }

  const TempDirectory directory_{test::memory_directory()};
  const std::string bad = directory_ / "step_00000020";
};

// Not damaged: version 0.2 names spans otherwise.
TEST_F(DamagedByRanks, FormerNameOfSpans) {
  change_state([](json& content) {
    for (json& file : content["files"]) {
      file["stretches"] = file["spans"];
      file.erase("spans");
    }
  });
  SmallTrainState run;
  HostMemoryDevice device;
  EXPECT_NO_THROW(load_checkpoint(disk, bad, run.tensors, device));
}
TEST_F(DamagedByRanks, FileMissing) {
  disk.remove_file(file(1));
  expect_refused(file(1), "is missing; the checkpoint is incomplete");
}
TEST_F(DamagedByRanks, FileCutOff) {
  disk.truncate(file(2), disk.file_size(file(2)) - 1);
  expect_refused(file(2), "were saved");
}
// The size is unchanged: detected only by the hash, on whichever rank reads that file.
TEST_F(DamagedByRanks, FileAltered) {
  for (const int64_t rank : {0, 1, 2}) {
    const std::string text = disk.read_file(file(rank));
    std::string changed = text;
    changed.back() = static_cast<char>(changed.back() ^ 1);
    write_file_atomically(disk, file(rank), bytes_of(changed));
    expect_skipped(file(rank) + " was altered");
    EXPECT_ERROR(verify_checkpoint(disk, bad), file(rank), "was altered");
    EXPECT_NO_THROW(verify_share_of_checkpoint(disk, bad, (rank + 1) % 3, 3));
    EXPECT_ERROR(verify_share_of_checkpoint(disk, bad, rank, 3), file(rank), "was altered");
    write_file_atomically(disk, file(rank), bytes_of(text));
  }
}
TEST_F(DamagedByRanks, FileNotListed) {
  change_state([](json& content) { content["files"].erase(2); });
  expect_refused(
      bad, "elements 10 to 14 of tensor 'm/model.embed.weight' (F32 [5, 3]) are missing from");
}
TEST_F(DamagedByRanks, FirstFileNotListed) {
  change_state([](json& content) { content["files"].erase(0); });
  expect_refused(bad, "elements 0 to 4 of tensor 'm/model.embed.weight'");
}
TEST_F(DamagedByRanks, FileOfAnotherCut) {
  std::filesystem::copy(file(1), bad + "/again");
  change_state([](json& content) {
    content["files"].push_back(content["files"][1]);
    content["files"][3]["name"] = "again";
  });
  expect_refused(bad + "/again", "of tensor 'm/model.embed.weight' are also in " + file(1));
}
TEST_F(DamagedByRanks, SpansOverlap) {
  const auto span = [](const char* tensor, const std::vector<int64_t>& shape, int64_t first,
                       int64_t count) {
    return json{{"tensor", tensor}, {"shape", shape}, {"first", first}, {"count", count}};
  };
  replace_file(
      1,
      {{"model.embed.weight@4", StoredType::kF32, {6}},
       {"model.norm.weight@2", StoredType::kBF16, {2}},
       {"m/model.embed.weight@5", StoredType::kF32, {5}}},
      json::array({span("model.embed.weight", {5, 3}, 4, 6), span("model.norm.weight", {7}, 2, 2),
                   span("m/model.embed.weight", {5, 3}, 5, 5)}));
  expect_refused(file(1), "elements 4 to 4 of tensor 'model.embed.weight' are also in " + file(0));
}
TEST_F(DamagedByRanks, SpanOfAnotherShapeOrType) {
  const json other{{"tensor", "model.embed.weight"}, {"shape", {3, 5}}, {"first", 5}, {"count", 5}};
  replace_file(1, {{"model.embed.weight@5", StoredType::kF32, {5}}}, json::array({other}));
  expect_refused(file(1),
                 "tensor 'model.embed.weight' is F32 [3, 5] here and F32 [5, 3] in " + file(0));
  const json same{{"tensor", "model.embed.weight"}, {"shape", {5, 3}}, {"first", 5}, {"count", 5}};
  replace_file(1, {{"model.embed.weight@5", StoredType::kI32, {5}}}, json::array({same}));
  expect_refused(file(1),
                 "tensor 'model.embed.weight' is I32 [5, 3] here and F32 [5, 3] in " + file(0));
}
TEST_F(DamagedByRanks, SpanThatIsNotInItsFile) {
  change_state([](json& content) { content["files"][1]["spans"][0]["first"] = 6; });
  expect_refused(file(1), "as 'model.embed.weight@6' with shape [5], found nothing");
  change_state([](json& content) {
    content["files"][1]["spans"][0]["first"] = 5;
    content["files"][1]["spans"][0]["count"] = 4;
  });
  expect_refused(file(1), "'model.embed.weight@5' with shape [4], found F32 [5]");
}
TEST_F(DamagedByRanks, SpanThatIsNotListed) {
  change_state([](json& content) { content["files"][1]["spans"].erase(0); });
  expect_refused(bad, "elements 5 to 9 of tensor 'model.embed.weight'");
}
TEST_F(DamagedByRanks, SpanListedTwice) {
  change_state([](json& content) {
    json& spans = content["files"][1]["spans"];
    spans.push_back(spans[0]);
  });
  expect_refused(file(1), "'model.embed.weight@5' is listed twice");
}
TEST_F(DamagedByRanks, SpanOutsideItsTensor) {
  for (const json& wrong : {json{{"first", -1}}, json{{"count", 0}}, json{{"count", -5}},
                            json{{"first", 15}}, json{{"count", 11}}, json{{"shape", {5, -3}}},
                            json{{"shape", {int64_t{1} << 40, int64_t{1} << 40}}},
                            json{{"count", std::numeric_limits<int64_t>::max()}}}) {
    SCOPED_TRACE(wrong.dump());
    json before;
    change_state([&](json& content) {
      before = content;
      content["files"][1]["spans"][0].update(wrong);
    });
    EXPECT_ERROR(read_checkpoint_state(disk, bad), bad + "/state.json",
                 "are outside tensor 'model.embed.weight'");
    change_state([&](json& content) { content = before; });
  }
}

// --- parts that a run requests -------------------------------------------------------------------

TEST_F(DamagedByRanks, NothingElseMayBeThereUnlessPartsAreLoaded) {
  RankThreads(2).run([&](Communicator& group) {
    HostMemoryDevice device;
    StateOfRank mine(group);
    std::vector<TensorPart> parts = mine.all();
    std::erase_if(parts,
                  [](const TensorPart& part) { return part.whole.name == "m/model.embed.weight"; });
    EXPECT_ERROR(load_verified_checkpoint(disk, bad, parts, device), file(0),
                 "holds tensor 'm/model.embed.weight' (F32 [5, 3]), which this run does not have");
    EXPECT_EQ(device.uploads, 0);
    load_part_of_verified_checkpoint(disk, bad, parts, device);
    EXPECT_GT(device.uploads, 0);
  });
}
TEST_F(DamagedByRanks, ElementsAskedForTwiceAreABug) {
  SmallTrainState run;
  HostMemoryDevice device;
  const TensorPart whole = whole_part(run.tensors[0]);
  const auto load = [&](const std::vector<TensorPart>& parts) {
    load_part_of_verified_checkpoint(disk, bad, parts, device);
  };
  EXPECT_NO_THROW(load({{whole.whole, 8, 7}, {whole.whole, 0, 8}}));
  EXPECT_THROW(load({{whole.whole, 7, 8}, {whole.whole, 0, 8}}), LogicError);
  EXPECT_THROW(load({whole, {whole.whole, 14, 1}}), LogicError);
}

}  // namespace
}  // namespace mpt
