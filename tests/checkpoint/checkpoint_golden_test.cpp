// Checkpoints written by earlier versions can still be read.
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_state.h"
#include "checkpoint/checkpoint_store.h"
#include "config/run_config_json.h"
#include "config/run_device.h"
#include "support/temp_directory.h"
#include "train/step/training_model.h"
#include "weights/loaded_model.h"

namespace mpt {
namespace {

// tests/golden/README.md describes it and how it was made.
const std::string kVersion1 = MPT_SOURCE_DIR "/tests/golden/checkpoint_version_1";

TEST(GoldenCheckpoint, OfVersion1IsLoadedWholeAndSavedWithTheSameBytes) {
  FileSystem& fs = posix_file_system();
  const std::string state_path = kVersion1 + "/state.json";
  const CheckpointRecord record = parse_checkpoint_record(state_path, fs.read_file(state_path));
  EXPECT_EQ(record.version, 1);
  EXPECT_EQ(record.saved_at, "");
  EXPECT_EQ(record.state.step, 3);
  EXPECT_EQ(record.state.cursor, 6);
  EXPECT_EQ(record.state.tokens, 96);
  EXPECT_EQ(record.state.seed, 3u);

  const RunConfig config =
      parse_run_config(JsonDocument::of_value(record.state.config, state_path));
  const auto device = make_device(config.device);
  const auto allocator = device->make_allocator();
  const TrainingModel model(config, *device, *allocator);
  const TrainState state = load_checkpoint(fs, kVersion1, model.named_tensors(), *device);
  EXPECT_EQ(state.config, record.state.config);

  const test::TempDirectory directory(test::memory_directory());
  CheckpointStore(fs, directory.path(), {}).save(state, model.named_tensors(), *device);
  const std::string file = "/rank_00000_of_00001.safetensors", saved = directory / "step_00000003";
  EXPECT_TRUE(fs.read_file(saved + file) == fs.read_file(kVersion1 + file));
  const CheckpointRecord again =
      parse_checkpoint_record(saved, fs.read_file(saved + "/state.json"));
  EXPECT_EQ(again.version, 2);
  EXPECT_EQ(again.files, record.files);
  EXPECT_EQ(again.saved_at.size(), std::string("2026-05-31T23:59:59Z").size());
}

TEST(GoldenCheckpoint, OfVersion1GivesAModel) {
  const LoadedModel model =
      load_model(posix_file_system(), kVersion1, {.type = DeviceType::kCpu, .threads = 1});
  EXPECT_EQ(model.step, 3);
  EXPECT_EQ(model.config.name, "version_1");
}

}  // namespace
}  // namespace mpt
