// Samples of a run: written when due, the same on any number of ranks and after a resume, and
// without any effect on the run itself.
#include "train/run_samples.h"

#include <limits>

#include <gtest/gtest.h>

#include "config/run_device.h"
#include "config/run_paths.h"
#include "model/parameters.h"
#include "support/expect_error.h"
#include "support/ranks_run.h"
#include "support/temp_directory.h"
#include "weights/loaded_model.h"

namespace mpt::test {
namespace {

using nlohmann::json;

std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const std::vector<std::string> kFp8Sets{"precision.weights=bf16", "precision.compute=fp8",
                                        "precision.fp8_eval_amax=fold"};

class RunSamplesTest : public testing::Test {
 protected:
  void SetUp() override { write_tiny_data(directory_.path()); }

  // A model for the vocabulary of a tokenizer whose EOS begins texts.
  [[nodiscard]] RunConfig config(const std::string& name,
                                 const std::vector<std::string>& more = {}) const {
    const std::vector<std::string> all{"model.vocab_size=424",
                                       "data.tokenizer=" MPT_SOURCE_DIR
                                       "/tests/golden/subword/gpt2.json",
                                       "eval.sample_prompts=[\"the\", \"\"]",
                                       "eval.sample_tokens=5",
                                       "eval.sample_temperature=1.5",
                                       "device.threads=1",
                                       "checkpoint.every_steps=12"};
    return tiny_config(directory_.path(), name, joined(all, more));
  }
  static std::map<int64_t, json> samples_of(const RunConfig& config) {
    return read_metrics(posix_file_system(), samples_path(config));
  }

  TempDirectory directory_{memory_directory()};
};

TEST_F(RunSamplesTest, AreWrittenWhenDue) {
  const RunConfig config = this->config("due", {"eval.samples_every=10"});
  train(config);
  const auto samples = samples_of(config);
  ASSERT_EQ(samples.size(), 3u);
  for (const int64_t step : {10, 20, 24}) {
    const json& texts = samples.at(step).at("samples");
    ASSERT_EQ(texts.size(), 2u);
    EXPECT_EQ(texts[0].at("prompt"), "the");
    EXPECT_EQ(texts[1].at("prompt"), "");
    EXPECT_NE(texts[0].at("text"), "");
    EXPECT_NE(texts[0].at("text"), texts[1].at("text"));
  }
  EXPECT_NE(samples.at(10).at("samples"), samples.at(24).at("samples"));
}

// In FP8, an evaluation would change the scales.
TEST_F(RunSamplesTest, LeaveTheRunAsItIs) {
  for (const auto& more : {std::vector<std::string>{}, kFp8Sets, kDocumentOverrides}) {
    const RunConfig with = config("with", joined(more, {"eval.samples_every=1"})),
                    without = config("without", more);
    train(with);
    train(without);
    EXPECT_EQ(tensors_at(with, 24), tensors_at(without, 24));
    EXPECT_EQ(metrics_of(with), metrics_of(without));
    EXPECT_FALSE(posix_file_system().exists(samples_path(without)));
    posix_file_system().remove_tree(run_directory(with));
    posix_file_system().remove_tree(run_directory(without));
  }
}

TEST_F(RunSamplesTest, AreTheSameAfterAResume) {
  const RunConfig whole = config("whole", {"eval.samples_every=4"}),
                  parts = config("parts", {"eval.samples_every=4"});
  train(whole);
  train(parts);
  train(parts, checkpoint_path(parts, 12));
  EXPECT_EQ(samples_of(parts), samples_of(whole));
  EXPECT_EQ(tensors_at(parts, 24), tensors_at(whole, 24));
  const std::string lines = posix_file_system().read_file(samples_path(parts));
  EXPECT_NE(lines.find(R"({"event":"resume","step":12})"), std::string::npos) << lines;
}

// Samples of steps that a run without samples repeats are no longer valid.
TEST_F(RunSamplesTest, AreReplacedByAResumeWithoutSamples) {
  const RunConfig on = config("off", {"eval.samples_every=4"}), off = config("off");
  train(on);
  train(off, checkpoint_path(off, 12));
  EXPECT_EQ(samples_of(off).rbegin()->first, 12);
}

// Uses weights that do not move.
TEST_F(RunSamplesTest, AreTheSameOnAnyNumberOfRanks) {
  for (const auto& more : {std::vector<std::string>{}, kFp8Sets}) {
    std::map<int64_t, json> of_one;
    for (const int64_t ranks : {1, 2, 3}) {
      const std::string name = fmt::format("ranks{}_{}", ranks, more.size());
      const RunConfig config = this->config(
          name, joined(more, {"eval.samples_every=2", "optimizer.lr_additive=0", "train.steps=3",
                              "optimizer.lr_multiplicative=0", "batch.micro_batch_rows=0"}));
      train_on(ranks, config);
      if (ranks == 1) of_one = samples_of(config);
      EXPECT_EQ(samples_of(config), of_one) << name;
    }
    EXPECT_EQ(of_one.size(), 2u);
  }
}

// The decoder computes one token at a time.
TEST_F(RunSamplesTest, AreWhatGenerateDraws) {
  const RunConfig config = this->config("generate", {"eval.samples_every=24"});
  train(config);
  const LoadedModel model =
      load_model(posix_file_system(), run_directory(config), {.type = DeviceType::kCpu});
  const Tokenizer tokenizer = Tokenizer::load(config.data.tokenizer);
  LlamaDecoder decoder(model.config.model,
                       {.storage = model.storage(), .max_positions = config.batch.seq_len},
                       *model.weights, *model.device, *model.allocator);
  for (const json& sample : samples_of(config).at(24).at("samples")) {
    std::string text;
    generate(decoder, tokenizer,
             {.prompt = sample.at("prompt"),
              .max_tokens = 5,
              .sampling = {.temperature = 1.5, .seed = config.seed}},
             [&](std::string_view piece) {
               text += piece;
               return true;
             });
    EXPECT_EQ(text, sample.at("prompt").get<std::string>() + sample.at("text").get<std::string>());
  }
}

TEST_F(RunSamplesTest, EndWhereALogitIsNotFinite) {
  const RunConfig config = this->config("nan", {"eval.samples_every=1"});
  const auto device = make_device(config.device);
  const auto allocator = device->make_allocator();
  TrainingModel model(config, *device, *allocator);
  initialize_weights(model.weights, 0.1, 1, *device);
  const Tensor last_norm = model.weights.compute(final_norm_index(config.model));
  const std::vector<float> nan(size_t(last_norm.elements()), std::nanf(""));
  device->upload(reinterpret_cast<const std::byte*>(nan.data()), last_norm);
  const std::vector<SampleText> samples = RunSamples(config).write(model.llama);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_FALSE(samples[0].finite);
  EXPECT_EQ(samples_json(3, samples).dump(),
            R"({"step":3,"samples":[{"prompt":"the","text":"","nonfinite":true},)"
            R"({"prompt":"","text":"","nonfinite":true}]})");
}

TEST_F(RunSamplesTest, WhatCannotBeIsRefusedBeforeTheRun) {
  EXPECT_ERROR(RunSamples(config(
                   "long", {"eval.sample_prompts=[\"a\", \"" + std::string(300, 'x') + "\"]"})),
               "eval.sample_prompts: number 2: the prompt has", "at most 16");
  EXPECT_ERROR(RunSamples(config("none", {"data.tokenizer=null"})),
               "eval.samples_every: the tokenizer of the data is unknown");
}

}  // namespace
}  // namespace mpt::test
