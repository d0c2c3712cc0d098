// Convert: the weights of a checkpoint in every other format, and refusals.
#include "weights/convert.h"

#include <cstring>

#include <gtest/gtest.h>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_store.h"
#include "core/io/directory_lock.h"
#include "evaluation/evaluate.h"
#include "support/expect_error.h"
#include "support/files.h"
#include "support/model_checkpoint.h"
#include "support/temp_directory.h"
#include "weights/average.h"
#include "weights/loaded_model.h"
#include "weights/weights_checkpoint.h"

namespace mpt::test {
namespace {

constexpr const char* kFile = "/checkpoints/step_00000000/rank_00000_of_00001.safetensors";
constexpr auto kScaled = {WeightFormat::kBlockFp8, WeightFormat::kNvfp4, WeightFormat::kMxfp8};

// Widths that are no multiples of a block.
LlamaConfig odd_config() {
  LlamaConfig config = small_config(31);
  config.hidden_size = 44;
  config.intermediate_size = 300;
  return config;
}

class Convert : public testing::Test {
 protected:
  Convert() {
    write_model_checkpoint(source_,
                           {.model = odd_config(), .weights = random_weights(odd_config())});
  }
  ConvertedCheckpoint convert(const std::string& from, const std::string& to, WeightFormat weights,
                              std::vector<std::string> overrides = {}) const {
    return convert_checkpoint(
        disk, {.checkpoint = from,
               .wanted = {.output = to, .weights = weights, .overrides = std::move(overrides)}});
  }

  TempDirectory directory_;
  std::string source_ = directory_ / "source";
};

// Returns the bytes of all pieces of a model's weights.
std::string bytes_of_weights(const WeightStore& weights, Device& device) {
  std::string all;
  for (const NamedTensor& named : weights.named_tensors()) {
    std::string bytes(size_t(named.tensor.elements() * size_of(named.tensor.dtype)), '\0');
    device.download(named.tensor, reinterpret_cast<std::byte*>(bytes.data()));
    all += named.name + bytes;
  }
  return all;
}

// Initial weights of a run are encoded from the same FP32 draws in every format; the source's are
// those draws (random_weights).
TEST_F(Convert, NarrowsAsARunEncodesItsInitialWeights) {
  for (const WeightFormat format :
       {WeightFormat::kF32, WeightFormat::kBF16, WeightFormat::kBlockFp8, WeightFormat::kNvfp4,
        WeightFormat::kMxfp8}) {
    SCOPED_TRACE(name_of(format));
    const std::string output = directory_ / std::string(name_of(format));
    const RunConfig config = convert(source_, output, format).config;
    const auto device = make_cpu_device(1);
    const auto allocator = device->make_allocator();
    const WeightOptions options = stored_weights(config.precision);
    const WeightStore drawn(llama_parameters(config.model), options, *device, *allocator),
        loaded(llama_parameters(config.model), options, *device, *allocator);
    initialize_weights(drawn, 0.3, 11, *device);
    load_checkpoint(disk, find_checkpoint(disk, output), loaded.named_tensors(), *device);
    EXPECT_TRUE(bytes_of_weights(loaded, *device) == bytes_of_weights(drawn, *device));
  }
}

TEST_F(Convert, WideningIsExact) {
  for (const WeightFormat format : kScaled) {
    SCOPED_TRACE(name_of(format));
    const std::string narrow = directory_ / (std::string(name_of(format)) + "_narrow"),
                      wide = directory_ / (std::string(name_of(format)) + "_wide");
    convert(source_, narrow, format);
    const WeightChanges changes = convert(narrow, wide, WeightFormat::kF32).changes;
    EXPECT_EQ(changes.changed, 0);
    EXPECT_EQ(changes.text(), "all kept exactly");
    EXPECT_EQ(changes.weights, parameter_count(odd_config()));
  }
}

TEST_F(Convert, TheSameFormatIsCopied) {
  for (const WeightFormat format : kScaled) {
    SCOPED_TRACE(name_of(format));
    const std::string once = directory_ / (std::string(name_of(format)) + "_1"),
                      twice = directory_ / (std::string(name_of(format)) + "_2");
    convert(source_, once, format);
    convert(once, twice, format);
    EXPECT_TRUE(disk.read_file(once + kFile) == disk.read_file(twice + kFile));
  }
}

// Options of the format are the source's unless they are set.
TEST_F(Convert, TheSameFormatKeepsItsOptions) {
  const auto stays = [&](const std::string& name, WeightFormat format, const std::string& option) {
    const std::string once = directory_ / (name + "_1"), twice = directory_ / (name + "_2");
    convert(source_, once, format, {option});
    EXPECT_EQ(convert(once, twice, format).changes.text(), "all kept exactly");
    EXPECT_TRUE(disk.read_file(once + kFile) == disk.read_file(twice + kFile)) << name;
  };
  stays("live", WeightFormat::kNvfp4, "precision.nvfp4_scale_mode=live");
  stays("wide", WeightFormat::kBlockFp8, "precision.fp8_block_size=64");
  stays("fp16", WeightFormat::kBlockFp8, "precision.fp8_scale_mode=fp16");
}

// Rounding to BF16 changes a weight by at most 2^-9 of it, and some by nearly that.
TEST_F(Convert, TellsTheLargestChange) {
  const WeightChanges changes = convert(source_, directory_ / "bf16", WeightFormat::kBF16).changes;
  EXPECT_LE(changes.largest, 0x1p-8);
  EXPECT_GT(changes.largest, 0x1p-10);
  EXPECT_GT(changes.changed, 0);
  EXPECT_LT(changes.changed, changes.weights);
  EXPECT_NE(changes.text().find(" changed by rounding, by at most 0."), std::string::npos)
      << changes.text();
}

// A run in a directory whose name cannot be used in a configuration has another name.
TEST_F(Convert, TheOutputMayHaveAnyName) {
  const std::string output = directory_ / "wide\xff";
  EXPECT_EQ(convert(source_, output, WeightFormat::kF32).config.name, "weights");
  EXPECT_EQ(load_model(disk, output, kOneThread).config.name, "weights");
}

TEST_F(Convert, OptionsOfTheFormatCanBeSet) {
  const RunConfig config = convert(source_, directory_ / "fp8", WeightFormat::kBlockFp8,
                                   {"precision.fp8_block_size=32", "precision.compute=fp32"})
                               .config;
  EXPECT_EQ(config.precision.fp8_block_size, 32);
  EXPECT_EQ(load_model(disk, directory_ / "fp8", kOneThread).storage(), DType::kF32);
}

TEST_F(Convert, WhatMakesNoSenseIsRefused) {
  const auto refused = [&](const std::string& set, const std::string& says) {
    EXPECT_ERROR(convert(source_, directory_ / "out", WeightFormat::kBF16, {set}), says);
  };
  refused("train.steps=5", "only keys of the precision section");
  refused("precision.weights=fp32", "--weights says bf16");
  refused("precision.compute=fp8", "no scales of FP8 GEMMs");
  refused("precision.fp8_block_size=32", "precision.fp8_block_size");
  refused("precision.nonsense=1", "unknown key");
  EXPECT_ERROR(convert(directory_ / "missing", directory_ / "out", WeightFormat::kBF16),
               "missing: no such checkpoint or run directory");
  EXPECT_FALSE(disk.exists(directory_ / "out"));
  EXPECT_ERROR(convert(source_, source_, WeightFormat::kBF16), "is not empty");
}

// `checkpoint prune` leaves its lock.
TEST_F(Convert, ReplacesADirectoryThatWasLocked) {
  const std::string output = directory_ / "out";
  convert(source_, output, WeightFormat::kF32);
  { const DirectoryLock lock(output); }
  EXPECT_NO_THROW(
      convert_checkpoint(disk, {.checkpoint = source_,
                                .wanted = {.output = output, .weights = WeightFormat::kF32},
                                .overwrite = Overwrite::kYes}));
}

TEST_F(Convert, ItIsACheckpointOfStepZeroAndSaysWhereFrom) {
  convert(source_, directory_ / "out", WeightFormat::kNvfp4);
  const std::string checkpoint = find_checkpoint(disk, directory_ / "out");
  EXPECT_TRUE(checkpoint.ends_with("/checkpoints/step_00000000")) << checkpoint;
  const TrainState state = verify_checkpoint(disk, checkpoint);
  EXPECT_EQ(state.step, 0);
  EXPECT_EQ(state.tokens, 0);
  EXPECT_TRUE(holds_weights_only(state));
  EXPECT_FALSE(holds_weights_only(read_checkpoint_state(disk, source_)));
  EXPECT_EQ(state.extra.at("weights_of"), find_saved_weights(disk, source_).json());
  EXPECT_EQ(state.extra.at("weights_of").at("step"), 7);
  EXPECT_EQ(disk.list_directory(directory_ / "out"),
            (std::vector<std::string>{"checkpoints", "config.json"}));
}

// Only the tokenizer named by the source's data matters here.
TEST_F(Convert, TakesRunsWhoseMixtureChanges) {
  RunConfig config = find_saved_weights(disk, source_).config;
  config.data.train = {{.name = "a", .files = {"a.bin"}, .weight = 1},
                       {.name = "b", .files = {"b.bin"}, .weight = 1}};
  config.data.phases = {{.from = 0.3, .weights = {{"a", 1}}}, {.from = 0.4, .weights = {{"b", 1}}}};
  const RunConfig made = config_of_weights(
      config, {.output = directory_ / "out", .weights = WeightFormat::kF32, .overrides = {}});
  EXPECT_EQ(made.data.train.size(), 2u);
  EXPECT_TRUE(made.data.phases.empty());
}

// --- mean of several -----------------------------------------------------------------------------

class Average : public Convert {
 protected:
  // Writes a checkpoint of the model of Convert with other weights.
  std::string checkpoint(const std::string& name, uint64_t seed, WeightFormat format) {
    const std::string drawn = directory_ / ("drawn_" + name), path = directory_ / name;
    write_model_checkpoint(drawn,
                           {.model = odd_config(), .weights = random_weights(odd_config(), seed)});
    convert(drawn, path, format);
    return path;
  }
  // Returns all weights of a checkpoint as FP32.
  std::vector<float> weights_of(const std::string& path) {
    const std::string wide = path + "_wide";
    convert(path, wide, WeightFormat::kF32);
    const SavedWeights saved = find_saved_weights(disk, wide);
    const auto device = make_cpu_device(1);
    const auto allocator = device->make_allocator();
    const WeightStore weights(llama_parameters(saved.config.model),
                              stored_weights(saved.config.precision), *device, *allocator);
    load_checkpoint(disk, saved.checkpoint, weights.named_tensors(), *device);
    const std::string bytes = bytes_of_values(weights, *device);
    std::vector<float> values(bytes.size() / 4);
    memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  static std::string bytes_of_values(const WeightStore& weights, Device& device) {
    std::string all;
    for (const NamedTensor& named : weights.named_tensors()) {
      std::string bytes(size_t(named.tensor.elements() * 4), '\0');
      device.download(named.tensor, reinterpret_cast<std::byte*>(bytes.data()));
      all += bytes;
    }
    return all;
  }
};

TEST_F(Average, IsTheMeanWhateverTheFormats) {
  const std::vector<std::string> all{checkpoint("a", 1, WeightFormat::kF32),
                                     checkpoint("b", 2, WeightFormat::kBF16),
                                     checkpoint("c", 3, WeightFormat::kNvfp4)};
  const std::string output = directory_ / "mean";
  const AveragedCheckpoints made = average_checkpoints(
      disk, {.checkpoints = all, .wanted = {.output = output, .weights = WeightFormat::kF32}});
  EXPECT_EQ(made.checkpoints.size(), 3u);
  EXPECT_EQ(made.changes.changed, 0);
  const std::vector<float> a = weights_of(all[0]), b = weights_of(all[1]), c = weights_of(all[2]),
                           mean = weights_of(output);
  ASSERT_EQ(mean.size(), a.size());
  ASSERT_GT(mean.size(), 10000u);
  for (size_t i = 0; i < mean.size(); ++i)
    ASSERT_EQ(mean[i], float((double(a[i]) + b[i] + c[i]) / 3)) << i;
  const std::string decayed = directory_ / "decayed";
  average_checkpoints(disk, {.checkpoints = all,
                             .decay = 0.5,
                             .wanted = {.output = decayed, .weights = WeightFormat::kF32}});
  const std::vector<float> of_decay = weights_of(decayed);
  for (size_t i = 0; i < mean.size(); ++i)
    ASSERT_EQ(of_decay[i], float((double(a[i]) * 0.25 + b[i] * 0.5 + c[i]) / 1.75)) << i;
  const TrainState state = read_checkpoint_state(disk, find_checkpoint(disk, output));
  EXPECT_EQ(state.extra.at("weights_of").at("mean_of").size(), 3u);
}

TEST_F(Average, RefusesAnEmaThatIsNotThere) {
  const auto ema = [&](std::vector<std::string> of, double decay = 1) {
    average_checkpoints(disk,
                        {.checkpoints = std::move(of),
                         .decay = decay,
                         .ema = true,
                         .wanted = {.output = directory_ / "out", .weights = WeightFormat::kF32}});
  };
  const std::string one = checkpoint("one", 1, WeightFormat::kF32);
  EXPECT_ERROR(ema({one}), "holds no EMA of weights: its run had train.ema_decay = 0");
  EXPECT_ERROR(ema({one, one}), "--ema takes one checkpoint");
  EXPECT_ERROR(ema({one}, 0.5), "without --last and --decay");
}

TEST_F(Average, NeedsSeveralOfOneModel) {
  const auto average = [&](std::vector<std::string> of, std::optional<int64_t> last = {}) {
    average_checkpoints(disk,
                        {.checkpoints = std::move(of),
                         .last = last,
                         .wanted = {.output = directory_ / "out", .weights = WeightFormat::kF32}});
  };
  const std::string one = checkpoint("one", 1, WeightFormat::kF32);
  EXPECT_ERROR(average({one}), "two checkpoints or more", "--last N");
  EXPECT_ERROR(average({one}, 2), "has 1 checkpoints; --last 2 needs as many");
  EXPECT_ERROR(average({one, one}, 2), "--last is for the checkpoints of one run, 2 are given");
  const LlamaConfig other = small_config(31);
  write_model_checkpoint(directory_ / "other", {.model = other, .weights = random_weights(other)});
  EXPECT_ERROR(average({one, directory_ / "other"}), "has another model than", "model.");
  EXPECT_ERROR(average({one, directory_ / "missing"}), "missing");
  // The same model, with every key spelled out.
  LlamaConfig spelled = odd_config();
  spelled.num_key_value_heads = spelled.key_value_heads();
  spelled.head_size = spelled.head_dim();
  write_model_checkpoint(directory_ / "spelled",
                         {.model = spelled, .weights = random_weights(spelled)});
  EXPECT_NO_THROW(average({one, directory_ / "spelled"}));
}

}  // namespace
}  // namespace mpt::test
