// train.init_from: a run that starts from stored weights is, bit for bit, the run that would have
// drawn them, in every format and on any number of ranks; anything that does not fit is refused.
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_files.h"
#include "config/run_paths.h"
#include "data/manifest.h"
#include "support/captured_log.h"
#include "support/expect_error.h"
#include "support/files.h"
#include "support/model_checkpoint.h"
#include "support/ranks_run.h"
#include "support/temp_directory.h"
#include "train/initial_weights.h"
#include "weights/convert.h"
#include "weights/weights_checkpoint.h"

namespace mpt::test {
namespace {

using nlohmann::json;

class InitFrom : public testing::Test {
 protected:
  InitFrom() {
    write_tiny_data(directory_.path());
    write_drawn_weights();
  }
  // Writes a checkpoint of the FP32 values that runs of seed 7 draw.
  void write_drawn_weights() const {
    const RunConfig run = config("drawn");
    const auto device = make_cpu_device(1);
    const auto allocator = device->make_allocator();
    const WeightStore store(
        llama_parameters(run.model),
        {.storage = DType::kF32, .gradient = DType::kF32, .gradients = Gradients::kNone}, *device,
        *allocator);
    initialize_weights(store, run.model.initializer_range, run.seed, *device);
    NamedValues values;
    for (const NamedTensor& named : store.named_tensors())
      values[named.name] = values_of(*device, named.tensor);
    write_model_checkpoint(source_, {.model = run.model, .weights = values});
  }
  // Writes a checkpoint of the source's weights, as imported from a model whose texts begin with
  // BOS.
  void write_weights_checkpoint_with_bos(const std::string& output) const {
    const SavedWeights saved = find_saved_weights(disk, source_);
    const auto device = make_cpu_device(1);
    CheckpointWeights weights(disk, saved.checkpoint, saved.config, *device);
    write_weights_checkpoint(disk,
                             {.output = output,
                              .config = config_of_weights(
                                  saved.config, {.output = output, .weights = WeightFormat::kF32}),
                              .weights_of = saved.json(),
                              .source = {.begin_with_bos = true}},
                             weights, *device);
  }
  [[nodiscard]] RunConfig config(const std::string& name,
                                 std::vector<std::string> overrides = {}) const {
    overrides.insert(overrides.begin(), {"train.steps=3", "device.threads=1"});
    return tiny_config(directory_.path(), name, overrides);
  }
  [[nodiscard]] RunConfig started(const std::string& name,
                                  std::vector<std::string> overrides = {}) const {
    overrides.push_back("train.init_from=" + source_);
    return config(name, std::move(overrides));
  }
  void train_started(const RunConfig& config, int64_t ranks = 1) const {
    disk.create_directories(run_directory(config));
    on_ranks(config, ranks, [&](RankOfRun& rank) {
      std::unique_ptr<Trainer> trainer;
      rank.ranks.or_abort([&] {
        trainer = std::make_unique<Trainer>(config, *rank.device, disk, rank.ranks);
        trainer->initialize_from(*initial_weights(disk, config, rank.ranks));
        trainer->run();
      });
    });
  }
  void expect_refused(const std::vector<std::string>& overrides, const std::string& says) const {
    EXPECT_ERROR(static_cast<void>(initial_weights(disk, started("refused", overrides))),
                 "train.init_from: " + source_, says);
  }

  TempDirectory directory_{memory_directory()};
  std::string source_ = directory_ / "source";
};

TEST_F(InitFrom, StoredDrawsAreDrawsInEveryFormat) {
  const std::vector<std::vector<std::string>> regimes{
      {"precision.weights=fp32", "precision.compute=fp32"},
      {"precision.weights=bf16"},
      {"precision.weights=bf16", "optimizer.weight_rounding=master"},
      {"precision.weights=bf16", "precision.compute=fp8", "precision.fp8_history=3"},
      {"precision.weights=block_fp8", "precision.compute=fp8", "precision.fp8_history=3"},
      {"precision.weights=nvfp4"},
      {"precision.weights=mxfp8"},
      {"optimizer.clip_weight=3", "optimizer.clip_weight_mode=init_rms"}};
  for (size_t i = 0; i < regimes.size(); ++i) {
    SCOPED_TRACE(regimes[i].front());
    const RunConfig drawn = config(fmt::format("drawn{}", i), regimes[i]),
                    loaded = started(fmt::format("loaded{}", i), regimes[i]);
    train(drawn);
    train_started(loaded);
    for (int64_t step = 1; step <= 3; ++step)
      EXPECT_TRUE(tensors_at(loaded, step) == tensors_at(drawn, step)) << step;
    EXPECT_EQ(metrics_of(loaded), metrics_of(drawn));
  }
}

TEST_F(InitFrom, TheSameOnAnyNumberOfRanks) {
  for (const int64_t ranks : {2, 3}) {
    SCOPED_TRACE(ranks);
    const std::vector<std::string> regime{"precision.weights=nvfp4",
                                          "distributed.check_every_steps=1"};
    const RunConfig drawn = config(fmt::format("drawn{}", ranks), regime),
                    loaded = started(fmt::format("loaded{}", ranks), regime);
    train_on(ranks, drawn);
    train_started(loaded, ranks);
    EXPECT_TRUE(state_at(loaded, 3) == state_at(drawn, 3));
  }
}

// From a run in another format: starts with its decoded weights, as written by convert.
TEST_F(InitFrom, ARunInAnotherFormatIsASource) {
  const RunConfig first = config("first", {"precision.weights=nvfp4"});
  train(first);
  convert_checkpoint(disk,
                     {.checkpoint = run_directory(first),
                      .wanted = {.output = directory_ / "wide", .weights = WeightFormat::kF32}});
  const RunConfig direct = config("direct", {"train.init_from=" + run_directory(first), "seed=8"});
  const RunConfig by_way = config("by_way", {"train.init_from=" + (directory_ / "wide"), "seed=8"});
  train_started(direct);
  train_started(by_way);
  EXPECT_TRUE(tensors_at(direct, 3) == tensors_at(by_way, 3));
  const TrainState state = read_checkpoint_state(disk, checkpoint_path(direct, 1));
  EXPECT_EQ(state.extra.at("init_from").at("step"), 3);
  EXPECT_EQ(state.extra.at("init_from").at("path"), checkpoint_path(first, 3));
  EXPECT_EQ(state.extra.at("init_from").at("hash"),
            hash_file(disk, checkpoint_path(first, 3) + "/state.json"));
}

// Besides the order of the data and the initial weights, which are the same here, the seed only
// affects stochastic rounding.
TEST_F(InitFrom, TheSeedIsThatOfStochasticRounding) {
  std::map<std::string, int> ends;
  for (const char* const name : {"first", "again", "other"}) {
    const RunConfig run =
        started(name, {"data.shuffle=false", "optimizer.weight_rounding=stochastic",
                       fmt::format("seed={}", std::string_view(name) == "other" ? 8 : 7)});
    train_started(run);
    ++ends[tensors_at(run, 3)];
  }
  EXPECT_EQ(ends.size(), 2u);
}

TEST_F(InitFrom, AResumedRunGoesOnFromItsOwnCheckpoints) {
  const RunConfig whole = started("whole"), part = started("part");
  train_started(whole);
  disk.remove_tree(source_);
  train(part, checkpoint_path(whole, 1));
  EXPECT_TRUE(tensors_at(part, 3) == tensors_at(whole, 3));
  EXPECT_EQ(read_checkpoint_state(disk, checkpoint_path(part, 3)).extra.at("init_from"),
            read_checkpoint_state(disk, checkpoint_path(whole, 3)).extra.at("init_from"));
  EXPECT_ERROR(train(config("other"), checkpoint_path(whole, 1)),
               "cannot be resumed with train.init_from = not set");
}

TEST_F(InitFrom, AnotherModelIsRefusedByItsKeys) {
  expect_refused({"model.hidden_size=64"}, "model.hidden_size is 32 there and 64 here");
  expect_refused({"model.intermediate_size=48"}, "model.intermediate_size is 40 there and 48");
  expect_refused({"model.num_hidden_layers=3"}, "model.num_hidden_layers is 2 there and 3 here");
  expect_refused({"model.vocab_size=62"}, "model.vocab_size is 61 there and 62 here");
  expect_refused({"model.num_attention_heads=2"}, "model.num_attention_heads is 4 there and 2");
  expect_refused({"model.num_key_value_heads=2"}, "model.num_key_value_heads is 4 there and 2");
  expect_refused({"model.rope_theta=500"}, "model.rope_theta is 10000.0 there and 500.0 here");
  expect_refused({"model.rms_norm_eps=1e-5"}, "model.rms_norm_eps is 1e-06 there and 1e-05");
  expect_refused({"model.rope_scaling.rope_type=linear", "model.rope_scaling.factor=2"},
                 "model.rope_scaling.rope_type is \"default\" there and \"linear\" here");
  expect_refused({"model.tie_word_embeddings=true"},
                 "model.tie_word_embeddings is false there and true here");
}

// For example for a longer context; nothing else of the model may differ.
TEST_F(InitFrom, OtherRotaryFrequenciesAreAcceptedWhenAsked) {
  const std::vector<std::string> longer{"model.rope_theta=5e5",
                                        "model.rope_scaling.rope_type=linear",
                                        "model.rope_scaling.factor=2", "batch.seq_len=32"};
  expect_refused(longer, "train.init_from_other_rope=true accepts it");
  std::vector<std::string> asked = longer;
  asked.emplace_back("train.init_from_other_rope=true");
  const CapturedLog log(spdlog::level::info);
  train_started(started("longer", asked));
  EXPECT_TRUE(log.has("train.init_from: model.rope_theta: 10000.0 -> 500000.0")) << log.text();
  EXPECT_TRUE(log.has("model.rope_scaling.rope_type: \"default\" -> \"linear\"")) << log.text();
  EXPECT_TRUE(log.has("model.rope_scaling.factor: not set -> 2.0")) << log.text();
  asked.emplace_back("model.rms_norm_eps=1e-5");
  expect_refused(asked, "model.rms_norm_eps is 1e-06 there and 1e-05 here");
  EXPECT_ERROR((void)config("alone", {"train.init_from_other_rope=true"}),
               "train.init_from_other_rope: is true, but train.init_from is not set");
}

// The permission was used when the run started.
TEST_F(InitFrom, AResumedRunNeedsNoLeaveForOtherFrequencies) {
  const std::vector<std::string> longer{"model.rope_theta=5e5"};
  RunConfig run = started("longer", {longer.front(), "train.init_from_other_rope=true"});
  train_started(run);
  train(started("longer", longer), checkpoint_path(run, 1));
}

// Their own run continues, and keeps only its newest checkpoint.
TEST_F(InitFrom, ARunThatGoesOnHasNewerWeights) {
  const RunConfig first = config("first"),
                  begun = config("begun", {"train.init_from=" + run_directory(first)});
  train(first);
  const SavedWeights found = *initial_weights(disk, begun);
  EXPECT_FALSE(initial_weights_are_gone(disk, found, begun, Communicator::single()));
  disk.remove_tree(checkpoint_path(first, 3));
  EXPECT_TRUE(initial_weights_are_gone(disk, found, begun, Communicator::single()));
  EXPECT_EQ(initial_weights(disk, begun)->step, 2);
}

TEST_F(InitFrom, WhatDoesNotChangeTheFunctionMayDiffer) {
  const RunConfig other =
      started("other", {"model.initializer_range=0.5", "model.pad_multiple=32", "seed=99",
                        "model.num_key_value_heads=4", "model.head_dim=8", "batch.seq_len=8"});
  EXPECT_EQ(initial_weights(disk, other)->step, 7);
  EXPECT_EQ(initial_weights(disk, config("none")), std::nullopt);
}

// A run's copy contains the settings that are in a separate file next to the original.
TEST_F(InitFrom, ATiktokenFileIsTheSameWithItsSettingsInside) {
  const std::string file = MPT_SOURCE_DIR "/tests/golden/subword/cl100k_base.tiktoken";
  const std::string copy = read_tokenizer_file(file).bytes, run = directory_ / "converted";
  ASSERT_NE(copy, disk.read_file(file));
  convert_checkpoint(disk,
                     {.checkpoint = source_,
                      .wanted = {.output = run, .weights = WeightFormat::kF32, .overrides = {}}});
  write_file_atomically(disk, run + "/tokenizer.tiktoken", bytes_of(copy));
  const auto begin = [&](const std::string& tokenizer) {
    return initial_weights(
        disk, config("begun", {"train.init_from=" + run, "data.tokenizer=" + tokenizer}));
  };
  EXPECT_NO_THROW(begin(file));
  EXPECT_ERROR(begin(MPT_SOURCE_DIR "/tests/golden/subword/gpt2.json"), "another one");
}

// Data keeps the hash of its tokenizer, whose file may have been removed.
TEST_F(InitFrom, TheManifestNamesTheTokenizerOfTheData) {
  const std::string file = MPT_SOURCE_DIR "/tests/golden/subword/gpt2.json", run = directory_ / "a";
  convert_checkpoint(
      disk, {.checkpoint = source_, .wanted = {.output = run, .weights = WeightFormat::kF32}});
  write_file_atomically(disk, run + "/tokenizer.json", bytes_of(disk.read_file(file)));
  const auto begin_with = [&](const std::string& hash) {
    Manifest manifest{.tokenizer = {.file = "gone.json", .hash = hash, .vocab_size = 61},
                      .splits = {},
                      .options = json::object()};
    manifest.save(directory_ / kManifestName);
    return initial_weights(disk, config("begun", {"train.init_from=" + run}));
  };
  EXPECT_NO_THROW(begin_with(Tokenizer::load(file).hash()));
  const std::string other(32, '0');
  EXPECT_ERROR(begin_with(other), run, "tokenizer.json", "hash " + other, "another one");
}

// An imported model records this; data records it in its manifest.
TEST_F(InitFrom, TextsThatBeganWithBosAreMissed) {
  const std::string run = directory_ / "imported";
  write_weights_checkpoint_with_bos(run);
  const auto warned = [&](std::optional<bool> bos) {
    if (bos)
      Manifest{.tokenizer = {.file = "gone.json", .hash = std::string(32, '0'), .vocab_size = 61},
               .splits = {},
               .options = {{"prepend_bos", *bos}}}
          .save(directory_ / kManifestName);
    const CapturedLog log;
    (void)initial_weights(disk, config("begun", {"train.init_from=" + run}));
    return log.has("begin with BOS, those of this run's data do not");
  };
  EXPECT_FALSE(warned(std::nullopt));  // unknown
  EXPECT_TRUE(warned(false));
  EXPECT_FALSE(warned(true));
}

// A run with copies in FP32 computes with the rounded weights, and logs that these are used.
TEST_F(InitFrom, ExactWeightsBesideTheStoredOnesAreLeftOut) {
  const RunConfig kept = config("kept", {"optimizer.weight_rounding=master", "train.steps=2"});
  train(kept);
  const CapturedLog log(spdlog::level::info);
  const WeightChanges changes =
      convert_checkpoint(disk,
                         {.checkpoint = run_directory(kept),
                          .wanted = {.output = directory_ / "wide", .weights = WeightFormat::kF32}})
          .changes;
  EXPECT_EQ(changes.changed, 0);
  EXPECT_TRUE(log.has("optimizer.weight_rounding = master)")) << log.text();
}

TEST_F(InitFrom, WhatIsNoCheckpointIsRefused) {
  EXPECT_ERROR(static_cast<void>(initial_weights(disk, config("a", {"train.init_from=/nowhere"}))),
               "/nowhere: no such checkpoint or run directory");
  EXPECT_ERROR((void)config("b", {"train.init_from="}), "train.init_from: must not be empty");
}

TEST_F(InitFrom, WeightsAloneCannotBeResumed) {
  convert_checkpoint(disk,
                     {.checkpoint = source_,
                      .wanted = {.output = directory_ / "alone", .weights = WeightFormat::kBF16}});
  EXPECT_ERROR(train(config("run"), find_checkpoint(disk, directory_ / "alone")),
               "holds only weights", "train.init_from");
}

}  // namespace
}  // namespace mpt::test
