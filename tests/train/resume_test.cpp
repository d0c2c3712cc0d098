// Exact resume: k steps, a restart from the checkpoint and N - k steps equal N steps, bit for bit.
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "checkpoint/checkpoint_command.h"
#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_parts.h"
#include "checkpoint/checkpoint_state.h"
#include "checkpoint/checkpoint_store.h"
#include "config/run_config_json.h"
#include "config/run_paths.h"
#include "data/manifest.h"
#include "support/captured_log.h"
#include "support/expect_error.h"
#include "support/temp_directory.h"
#include "support/tiny_run.h"
#include "train/resume/resume_check.h"
#include "train/train_command.h"

namespace mpt::test {
namespace {

struct Variant {
  std::string name;
  std::vector<std::string> overrides;
};

void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

class Resume : public testing::TestWithParam<Variant> {};

TEST_P(Resume, FromEveryStepGivesTheSameBytes) {
  const TempDirectory directory;
  write_tiny_data(directory.path());
  const RunConfig whole = tiny_config(directory.path(), "whole", GetParam().overrides);
  train(whole);
  const std::string last = tensors_at(whole, kTinySteps), metrics = metrics_of(whole);
  for (const int64_t step : {1, 2, 9, 10, 11, 18, 19, 23}) {
    const RunConfig part =
        tiny_config(directory.path(), fmt::format("part{}", step), GetParam().overrides);
    train(part, checkpoint_path(whole, step));
    EXPECT_TRUE(tensors_at(part, kTinySteps) == last) << "resumed at step " << step;
    const std::string tail = metrics_of(part);
    EXPECT_TRUE(metrics.ends_with(tail)) << "resumed at step " << step << "\n"
                                         << metrics << "\n"
                                         << tail;
    EXPECT_EQ(std::count(tail.begin(), tail.end(), '\n'), kTinySteps - step);
  }
}

TEST_P(Resume, TwoRunsGiveTheSameBytes) {
  const TempDirectory directory;
  write_tiny_data(directory.path());
  const RunConfig a = tiny_config(directory.path(), "a", GetParam().overrides);
  const RunConfig b = tiny_config(directory.path(), "b", GetParam().overrides);
  train(a);
  train(b);
  for (int64_t step = 1; step <= kTinySteps; ++step)
    ASSERT_TRUE(tensors_at(a, step) == tensors_at(b, step)) << "step " << step;
  EXPECT_EQ(metrics_of(a), metrics_of(b));
}

// Every weight and every state changes in a step: the optimizer or the checkpoint forgets none.
TEST_P(Resume, EverySavedTensorChanges) {
  const TempDirectory directory;
  write_tiny_data(directory.path());
  const RunConfig config = tiny_config(directory.path(), "run", GetParam().overrides);
  train(config);
  SafetensorsReader before(posix_file_system(),
                           checkpoint_path(config, 1) + "/rank_00000_of_00001.safetensors");
  SafetensorsReader after(posix_file_system(),
                          checkpoint_path(config, 2) + "/rank_00000_of_00001.safetensors");
  ASSERT_EQ(before.tensors().size(), after.tensors().size());
  for (const auto& info : before.tensors()) {
    if (info.name == "init_rms") continue;
    EXPECT_FALSE(before.read(before.at(info.name)) == after.read(after.at(info.name))) << info.name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Runs, Resume,
    testing::Values(
        Variant{"bf16", {}},
        Variant{"bf16_fp32_states", {"precision.optimizer_state=fp32", "precision.gradient=fp32"}},
        Variant{"fp32",
                {"precision.weights=fp32", "precision.compute=fp32", "precision.gradient=fp32",
                 "precision.optimizer_state=fp32"}},
        Variant{"recompute_whole_step",
                {"train.activation_recompute=block", "batch.micro_batch_rows=0"}},
        Variant{"options",
                {"optimizer.clip_weight=3", "optimizer.clip_weight_mode=init_rms",
                 "optimizer.weight_decay_multiplicative=0.1",
                 "optimizer.weight_decay_multiplicative_mode=exponent", "schedule.shape=wsd"}},
        Variant{"update_statistics", {"log.update_statistics=1"}},
        Variant{"documents", {"data.attention=document"}},
        Variant{"documents_by_best_fit", kDocumentOverrides},
        Variant{"unshuffled", {"data.shuffle=false", "data.prefetch_steps=1"}}),
    [](const auto& instance) { return instance.param.name; });

// Codes of weights are the same whether kept or recomputed: every tensor at every step, with two
// micro-batches, evaluation after each step, and a resumed run that does the other.
TEST(Training, CodesOfOneLayerChangeNoBits) {
  for (const std::vector<std::string>& regime :
       {std::vector<std::string>{"precision.weights=nvfp4"},
        {"precision.weights=block_fp8", "precision.fp8_weight_recast=microbatch",
         "precision.fp8_eval_amax=fold", "train.activation_recompute=block"}}) {
    SCOPED_TRACE(regime.front());
    const TempDirectory directory;
    write_tiny_data(directory.path());
    const auto with = [&](const std::string& codes, const std::string& name) {
      std::vector<std::string> all{"precision.compute=fp8", "precision.fp8_history=3",
                                   "train.steps=4",         "eval.every_steps=1",
                                   "device.type=cpu",       "device.fp8_weight_codes=" + codes};
      all.insert(all.end(), regime.begin(), regime.end());
      return tiny_config(directory.path(), name, all);
    };
    const RunConfig kept = with("all_layers", "kept"), again = with("one_layer", "again"),
                    other = with("one_layer", "other"), back = with("auto", "back");
    train(kept);
    train(again);
    for (int64_t step = 1; step <= 4; ++step)
      EXPECT_TRUE(tensors_at(again, step) == tensors_at(kept, step)) << step;
    EXPECT_EQ(metrics_of(again), metrics_of(kept));
    train(other, checkpoint_path(kept, 2));
    train(back, checkpoint_path(again, 2));
    for (const RunConfig& continued : {other, back})
      EXPECT_TRUE(tensors_at(continued, 4) == tensors_at(kept, 4));
  }
}

// The order of data and the number of tokens do not depend on the micro-batch; the arithmetic
// differs only by rounding.
TEST(Training, MicroBatchDoesNotChangeTheData) {
  const TempDirectory directory;
  write_tiny_data(directory.path());
  std::vector<std::map<int64_t, nlohmann::json>> runs;
  for (const char* rows : {"1", "2", "6"}) {
    const RunConfig config =
        tiny_config(directory.path(), std::string("rows") + rows,
                    {std::string("batch.micro_batch_rows=") + rows, "precision.weights=fp32",
                     "precision.compute=fp32", "precision.gradient=fp32",
                     "precision.optimizer_state=fp32", "train.steps=2"});
    train(config);
    runs.push_back(read_metrics(posix_file_system(), metrics_path(config)));
  }
  // The first loss precedes any update: sums of the same 96 FP32 losses, each within a few ulp.
  const double loss = runs[0].at(1).at("loss").get<double>();
  for (const auto& run : runs) {
    EXPECT_NEAR(run.at(1).at("loss").get<double>(), loss, 1e-6 * loss);
    EXPECT_EQ(run.at(2).at("tokens").get<int64_t>(), 192);
  }
}

class ResumeRefused : public testing::Test {
 protected:
  void SetUp() override {
    write_tiny_data(directory_.path());
    config_ = tiny_config(directory_.path(), "run", {"train.steps=2"});
    train(config_);
  }
  void expect_refused(const std::vector<std::string>& overrides, const std::string& part) {
    std::vector<std::string> all{"train.steps=2"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    const RunConfig other = tiny_config(directory_.path(), "other", all);
    EXPECT_ERROR(train(other, checkpoint_path(config_, 1)), part, "step_00000001");
  }
  TempDirectory directory_;
  RunConfig config_;
};

TEST_F(ResumeRefused, OfAnotherModel) {
  expect_refused({"model.hidden_size=64"}, "model.hidden_size");
}
TEST_F(ResumeRefused, WithAnotherSeed) { expect_refused({"seed=8"}, "seed"); }
TEST_F(ResumeRefused, WithAnotherStateFormat) {
  expect_refused({"precision.optimizer_state=fp32"}, "precision.optimizer_state");
}
// Named itself, not by a key that depends on it.
TEST_F(ResumeRefused, WithAnotherRule) {
  expect_refused({"optimizer.rule=adamw", "optimizer.lr_multiplicative=null"},
                 "with optimizer.rule = \"adamw\": the checkpoint was saved with \"m_plus_adam\"");
}
TEST_F(ResumeRefused, WithAnotherOrder) { expect_refused({"data.shuffle=false"}, "data.shuffle"); }
// Named by name, or by its position in the list.
TEST_F(ResumeRefused, WithOtherDataOfTheSameSize) {
  const std::string shard = directory_ / "train_1.bin";
  const std::string good = posix_file_system().read_file(shard);
  write_random_shard(shard, 77, 9);
  expect_refused({}, "shard 2, train_1.bin of 77 tokens, has other tokens now");
  write_file_atomically(posix_file_system(), shard, bytes_of(good));
  const std::string reordered = fmt::format(
      R"(data.train=["{0}/train_1.bin","{0}/train_0.bin","{0}/train_2.bin"])", directory_.path());
  expect_refused({reordered},
                 "shard 1 was train_0.bin of 301 tokens and is train_1.bin of 77 tokens");
  expect_refused({fmt::format("data.train={}/train_0.bin", directory_.path())},
                 "there were 3 shards and are 1");
  std::filesystem::rename(shard, directory_ / "train_1b.bin");
  const RunConfig renamed = tiny_config(directory_.path(), "renamed", {"train.steps=2"});
  EXPECT_NO_THROW(train(renamed, checkpoint_path(config_, 1))) << "the tokens count, not names";
}
TEST_F(ResumeRefused, NotForDataThatAreAccepted) {
  write_random_shard(directory_ / "train_1.bin", 77, 9);
  const RunConfig other =
      tiny_config(directory_.path(), "other", {"train.steps=2", "data.changed_shards=accept"});
  {
    const CapturedLog log;
    train(other, checkpoint_path(config_, 1));
    EXPECT_TRUE(
        log.has("shard 2, train_1.bin of 77 tokens, has other tokens now; going on with "
                "them (data.changed_shards)"))
        << log.text();
  }
  const CapturedLog log;
  const RunConfig again =
      tiny_config(directory_.path(), "again", {"train.steps=3", "data.changed_shards=accept"});
  train(again, checkpoint_path(other, 2));
  EXPECT_FALSE(log.has("other tokens")) << log.text();
}
TEST_F(ResumeRefused, NotForOtherValidationDataWhichAreTold) {
  write_random_shard(directory_ / "val_0.bin", 150, 9);
  const CapturedLog log;
  train(tiny_config(directory_.path(), "other", {"train.steps=2"}), checkpoint_path(config_, 1));
  EXPECT_TRUE(log.has("the validation data are others: shard 1, val_0.bin")) << log.text();
}
// Compares with the manifest kept by the run, and without one only the number of tokens.
TEST_F(ResumeRefused, WithOtherDataThanACheckpointThatDoesNotListThem) {
  const std::string checkpoint = checkpoint_path(config_, 1);
  CheckpointRecord record = read_checkpoint_record(posix_file_system(), checkpoint);
  record.state.extra.erase("data_shards");
  write_checkpoint_state(posix_file_system(), checkpoint, record.state, record.files);
  const auto manifest_of_shards = [&](const std::string& path) {
    Manifest manifest;
    manifest.tokenizer = {.file = "t.model", .hash = "t", .vocab_size = kTinyVocab};
    for (const char* const name : {"train_0.bin", "train_1.bin", "train_2.bin", "val_0.bin"}) {
      const TokenShard shard(directory_ / name);
      ManifestSplit& split = manifest.splits["train"];
      split.shards.push_back({name, shard.tokens(), shard.content_hash()});
      split.tokens += shard.tokens();
    }
    manifest.save(path);
  };
  const RunConfig other = tiny_config(directory_.path(), "other", {"train.steps=2"});
  {
    const CapturedLog log;
    train(other, checkpoint);
    EXPECT_TRUE(log.has("does not say which shards it was trained on")) << log.text();
  }
  manifest_of_shards(run_directory(config_) + "/data_manifest.json");
  write_random_shard(directory_ / "train_1.bin", 77, 9);
  manifest_of_shards(directory_ / "manifest.json");
  expect_refused({}, "shard 2, train_1.bin of 77 tokens, has other tokens now");
}
// A tensor's initial RMS cannot be determined later.
TEST_F(ResumeRefused, WithAnotherUnitOfTheBoundOnWeights) {
  expect_refused({"optimizer.clip_weight=3", "optimizer.clip_weight_mode=init_rms"},
                 "saved without a bound on weights in units of their initial RMS");
}
// The number of updates is the rest of the steps.
TEST_F(ResumeRefused, WithMoreSkippedStepsThanSteps) {
  TrainState saved = read_checkpoint_state(posix_file_system(), checkpoint_path(config_, 1));
  saved.extra["skipped_steps"] = 2;
  EXPECT_ERROR(check_resumable(saved, "former", config_), "former",
               "extra.skipped_steps of its state is 2", "expected no more than its 1 steps");
  saved.extra["skipped_steps"] = 1;
  EXPECT_NO_THROW(check_resumable(saved, "former", config_));
  saved.extra["earlier_updates"] = 1;
  EXPECT_ERROR(check_resumable(saved, "former", config_), "extra.earlier_updates is 1");
}
// A key unknown to the version that saved has its default.
TEST_F(ResumeRefused, NotForAKeyThatTheCheckpointLacks) {
  TrainState saved = read_checkpoint_state(posix_file_system(), checkpoint_path(config_, 1));
  ASSERT_EQ(saved.config.at("data").erase("attention"), 1u);
  EXPECT_NO_THROW(check_resumable(saved, "former", config_));
  RunConfig other = config_;
  other.data.attention = AttentionScope::kDocument;
  EXPECT_ERROR(check_resumable(saved, "former", other), "data.attention = \"document\"",
               "saved with \"row\"");
}
TEST_F(ResumeRefused, WithOtherDocuments) {
  expect_refused({"data.attention=document"}, "data.attention");
  expect_refused({"data.packing=best_fit"}, "data.packing");
}
TEST_F(ResumeRefused, WithOtherData) {
  expect_refused({"data.train=" + directory_.path() + "/train_0.bin"}, "data.train");
}
TEST_F(ResumeRefused, BeyondTheEnd) {
  const RunConfig shorter = tiny_config(directory_.path(), "other", {"train.steps=1"});
  EXPECT_ERROR(train(shorter, checkpoint_path(config_, 2)), "train.", "step 2");
}

TEST_F(ResumeRefused, NewPhasesAreOneLine) {
  const RunConfig phased =
      tiny_config(directory_.path(), "phased", {R"(phases=[{"until": 0.5}, {"until": 1}])"});
  const CapturedLog log;
  EXPECT_NO_THROW(check_resumable(
      read_checkpoint_state(posix_file_system(), checkpoint_path(config_, 1)), "former", phased));
  EXPECT_TRUE(log.has("keys of phases changed, first phases.0.")) << log.text();
  EXPECT_FALSE(log.has("phases.1.")) << log.text();
}

// A rolled-back run that is killed before it saves resumes from where it was rolled back to.
TEST(ResumeEarlier, LaterCheckpointsAreSetAsideAtOnce) {
  const TempDirectory directory(memory_directory());
  write_tiny_data(directory.path());
  const RunConfig config = tiny_config(directory.path(), "run", {"checkpoint.every_steps=8"});
  const std::string file = directory / "run.json";
  std::ofstream(file) << resolved_json(config);
  const auto run = [&](const std::string& resume, std::vector<std::string> overrides = {}) {
    return run_train({.config = file, .overrides = std::move(overrides), .resume = resume});
  };
  run("");
  const std::string metrics = metrics_of(config), end = tensors_at(config, kTinySteps);
  EXPECT_ERROR(run(checkpoint_path(config, 8), {"optimizer.lr_additive=1e30"}), "is not finite");
  const CheckpointStore store(posix_file_system(), checkpoint_directory(config), {});
  EXPECT_EQ(store.latest_good(), checkpoint_path(config, 8));
  EXPECT_EQ(store.set_aside(),
            (std::vector<std::string>{checkpoint_path(config, 16) + ".abandoned",
                                      checkpoint_path(config, 24) + ".abandoned"}));
  const std::string note = set_aside_note(posix_file_system(), run_directory(config));
  EXPECT_NE(note.find("step_00000016.abandoned"), std::string::npos) << note;
  run("latest");
  EXPECT_TRUE(tensors_at(config, kTinySteps) == end);
  EXPECT_EQ(metrics_of(config), metrics);
}

TEST(ResumeEarlier, NothingIsWrittenWhereThereIsNothingToResume) {
  const TempDirectory directory(memory_directory());
  write_tiny_data(directory.path());
  const RunConfig config = tiny_config(directory.path(), "misspelled");
  const std::string file = directory / "run.json";
  std::ofstream(file) << resolved_json(config);
  const auto run = [&](const std::string& resume) {
    run_train({.config = file, .overrides = {}, .resume = resume});
  };
  EXPECT_ERROR(run("latest"), "--resume latest: ", "misspelled/checkpoints has no checkpoint");
  EXPECT_ERROR(run("newest"), "--resume newest: not a checkpoint", "expected auto, latest or");
  EXPECT_FALSE(posix_file_system().exists(run_directory(config)));
}

// A changed rate or length is the user's right, and the run continues.
TEST_F(ResumeRefused, NotForAnotherLength) {
  const RunConfig longer =
      tiny_config(directory_.path(), "longer", {"train.steps=3", "optimizer.lr_additive=1e-3"});
  train(longer, checkpoint_path(config_, 2));
  EXPECT_TRUE(posix_file_system().exists(checkpoint_path(longer, 3)));
}

}  // namespace
}  // namespace mpt::test
