// Reports of a plan: whether a run could start, what prevents it, and how long it would take.
#include "plan/run_plan.h"

#include <gtest/gtest.h>

#include "checkpoint/checkpoint_store.h"
#include "config/cautions.h"
#include "config/run_data.h"
#include "config/run_device.h"
#include "config/run_paths.h"
#include "core/io/safetensors.h"
#include "plan/time_estimate.h"
#include "support/expect_error.h"
#include "support/temp_directory.h"
#include "support/tiny_run.h"
#include "train/resources/storage_bytes.h"
#include "train/step/training_model.h"
#include "train/step_schedule.h"
#include "weights/convert.h"

namespace mpt::test {
namespace {

const std::string kConfigs = std::string(MPT_SOURCE_DIR) + "/configs/";

class Plan : public testing::Test {
 protected:
  void SetUp() override { write_tiny_data(directory_.path()); }
  RunConfig config(std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"device.type=cpu", "device.threads=1"});
    return tiny_config(directory_.path(), "planned", more);
  }
  static RunPlan planned(const RunConfig& config, int64_t ranks = 1) {
    return plan_of({config}, *make_planning_device(config.device), Communicator::planned(0, ranks));
  }
  static void expect_problem(const RunPlan& plan, const std::vector<std::string>& parts) {
    ASSERT_EQ(plan.problems.size(), 1) << fmt::format("{}", fmt::join(plan.problems, "\n"));
    for (const std::string& part : parts)
      EXPECT_NE(plan.problems.front().find(part), std::string::npos) << plan.problems.front();
  }
  static void expect_text(const RunConfig& config, const RunPlan& plan, const std::string& part) {
    EXPECT_NE(verdict(config, plan).find(part), std::string::npos) << verdict(config, plan);
  }

  TempDirectory directory_;
};

TEST_F(Plan, OfARunThatCouldStart) {
  const RunConfig run = config();
  const RunPlan plan = planned(run);
  EXPECT_EQ(plan.problems, std::vector<std::string>());
  EXPECT_TRUE(plan.fits());
  EXPECT_EQ(plan.training.tokens, 890);
  EXPECT_EQ(plan.validation.tokens, 150);
  EXPECT_GT(plan.time.seconds.value_or(0), 0);
  expect_text(run, plan, "start                  ready");
  expect_text(run, plan, "890 tokens to train on");
  EXPECT_FALSE(posix_file_system().exists(run_directory(run)));
  const nlohmann::ordered_json json = verdict_json(run, plan);
  EXPECT_EQ(json.at("ready"), true);
  EXPECT_EQ(json.at("fits"), true);
  EXPECT_EQ(json.at("problems").size(), 0);
  EXPECT_EQ(json.at("rows").at("step"), 6);
  EXPECT_EQ(json.at("rows").at("micro_batch"), 3);
  EXPECT_EQ(json.at("rows").at("largest_micro_batch"), 6);
  EXPECT_TRUE(json.at("rows").at("chosen").is_null());
  expect_text(run, plan, "micro-batches          2 micro-batches of 3 rows\n");
  EXPECT_EQ(json.at("flops_per_step"), 96 * json.at("flops_per_token").get<double>());
  EXPECT_DOUBLE_EQ(json.at("data").at("epochs").get<double>(), 24.0 * 6 / 55);
  EXPECT_TRUE(json.at("data").at("made_by").is_null());
  EXPECT_GT(json.at("time").at("seconds").get<double>(), 0);
}

TEST_F(Plan, NamesShardsThatAreMissing) {
  const RunConfig run = config({"data.train=" + (directory_ / "none_*.bin")});
  const RunPlan plan = planned(run);
  expect_problem(plan, {"none_*.bin", "no such file"});
  expect_text(run, plan, "not ready, 1 problem");
  expect_text(run, plan, "mpretrain tokenize --input");
  EXPECT_EQ(verdict_json(run, plan).at("data").at("train").at("found"), false);
  EXPECT_EQ(verdict_json(run, plan).at("data").at("validation").at("tokens"), 150);
  EXPECT_EQ(verdict_json(run, plan).at("ready"), false);
  EXPECT_ERROR(open_training_data(run), plan.problems.front());
}

TEST_F(Plan, WarnsOfErrorFeedbackThatIsUnstable) {
  const auto warned = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"precision.weights=nvfp4", "optimizer.error_feedback=momentum"});
    return cautions(config(more));
  };
  const std::vector<std::string> texts = warned({});
  ASSERT_EQ(texts.size(), 1);
  for (const char* part :
       {"optimizer.error_feedback = momentum", "optimizer.weight_rounding = nearest",
        "precision.weights = nvfp4", "optimizer.beta1 = 0.9, at least 0.75",
        "optimizer.weight_rounding=stochastic, or optimizer.beta1 below 0.75"})
    EXPECT_NE(texts.front().find(part), std::string::npos) << texts.front();
  EXPECT_EQ(warned({"optimizer.beta1=0.75"}).size(), 1);
  const std::vector<std::string> live{"precision.nvfp4_scale_mode=live"};
  EXPECT_EQ(warned(live).size(), 1);
  const std::vector<std::string> none;
  EXPECT_EQ(warned({"optimizer.beta1=0.74"}), none);
  EXPECT_EQ(warned({"optimizer.weight_rounding=stochastic"}), none);
  for (const char* const fp8 : {"precision.weights=block_fp8", "precision.weights=mxfp8"}) {
    EXPECT_EQ(warned({fp8}), none);
    EXPECT_EQ(warned({fp8, "optimizer.beta1=0.9375"}).size(), 1) << fp8;
    EXPECT_EQ(warned({fp8, "optimizer.beta1=0.937"}), none) << fp8;
  }
  EXPECT_EQ(warned({"precision.weights=bf16"}), none);
  EXPECT_EQ(warned({"optimizer.error_feedback=off"}), none);
  const RunConfig run = config({"precision.weights=nvfp4", "optimizer.error_feedback=momentum"});
  const RunPlan plan = planned(run);
  EXPECT_EQ(plan.problems, none);
  expect_text(run, plan,
              "  warning                optimizer.error_feedback = momentum is unstable");
  EXPECT_EQ(verdict_json(run, plan).at("warnings"), nlohmann::json(texts));
  EXPECT_EQ(verdict_json(config(), plan).at("warnings").size(), 0);
}

// Keys are named as they are written.
TEST_F(Plan, WarnsOfPhases) {
  const std::vector<std::string> texts = cautions(
      config({"precision.weights=nvfp4", "optimizer.error_feedback=momentum",
              R"(phases=[{"until": 0.5, "precision": {"weights": "bf16"}}, {"until": 1}])"}));
  ASSERT_EQ(texts.size(), 1);
  EXPECT_TRUE(texts.front().starts_with("phases.1.optimizer.error_feedback = momentum"))
      << texts.front();
}

TEST_F(Plan, NamesADirectoryOfShards) {
  expect_problem(planned(config({"data.train=" + directory_.path() + "/"})),
                 {"data.train: ", " is a directory; name its shards", "/train_*.bin"});
}

TEST_F(Plan, NamesShardsThatAreTrainedAndEvaluatedOn) {
  EXPECT_EQ(text_of_shards_in_both(config().data), "");
  const RunConfig run = config({"data.train=" + (directory_ / "*_0.bin")});
  const RunPlan plan = planned(run);
  EXPECT_TRUE(plan.problems.empty());
  expect_text(run, plan, "; 1 shard is in data.train and in data.validation: the loss there is of");
}

TEST_F(Plan, NamesATokenizerThatIsMissingAndLooksAtTheShardsAllTheSame) {
  const RunConfig run = config({"data.tokenizer=none.model"});
  const RunPlan plan = planned(run);
  expect_problem(plan, {"none.model"});
  EXPECT_EQ(plan.training.tokens, 890);
}

TEST_F(Plan, SaysWhatWouldFitInMemory) {
  const RunConfig batch = config({"batch.tokens_per_step=134217600", "batch.micro_batch_rows=0"});
  RunPlan plan = planned(batch);
  EXPECT_FALSE(plan.fits());
  expect_problem(plan, {"this run needs", "batch.micro_batch_rows="});
  expect_text(batch, plan, "does not fit: ");
  EXPECT_GT(plan.largest_micro_batch.value_or(0), 0);
  const RunConfig model = config({"model.hidden_size=65536", "model.num_hidden_layers=64"});
  plan = planned(model);
  EXPECT_EQ(verdict_json(model, plan).at("fits"), false);
  EXPECT_EQ(plan.largest_micro_batch, 0);
  EXPECT_NE(plan.time.basis.find("training reaches less"), std::string::npos) << plan.time.basis;
}

// Nothing guarantees the contents of shards without a manifest.
TEST_F(Plan, ReadsTheTokensThatAreEvaluatedAndAsManyToTrainOnAsAsked) {
  const RunConfig run = config();
  const auto problems = [&](int64_t scanned) {
    return plan_of({run}, *make_planning_device(run.device), Communicator::planned(0, 1),
                   {.scanned_tokens = scanned})
        .problems;
  };
  EXPECT_TRUE(problems(1000).empty());
  write_random_shard(directory_ / "train_2.bin", 512, 3, kTinyVocab + 40);
  EXPECT_TRUE(problems(378).empty());
  ASSERT_EQ(problems(1000).size(), 1u);
  EXPECT_NE(problems(1000)[0].find("train_2.bin: token "), std::string::npos) << problems(1000)[0];
  write_random_shard(directory_ / "val_0.bin", 150, 4, kTinyVocab + 40);
  ASSERT_EQ(problems(0).size(), 1u);
  EXPECT_NE(problems(0)[0].find("val_0.bin: token "), std::string::npos) << problems(0)[0];
}

TEST_F(Plan, NamesARunThatIsThere) {
  const RunConfig run = config({"train.steps=1"});
  train(run);
  expect_problem(planned(run), {"already holds a run", "--resume auto"});
  EXPECT_TRUE(plan_of({run}, *make_planning_device(run.device), Communicator::planned(0, 1),
                      {.saved = Checkpoints::kSome})
                  .problems.empty());
}

TEST_F(Plan, SaysHowToStartFromWeightsThatAreThere) {
  const RunConfig source = config({"name=source", "train.steps=1"}), run = config();
  train(source);
  convert_checkpoint(posix_file_system(), {.checkpoint = run_directory(source),
                                           .wanted = {.output = run_directory(run)}});
  expect_problem(planned(run), {run_directory(run) + " holds only weights",
                                "train.init_from=" + run_directory(run)});
  EXPECT_EQ(planned(config({"name=other", "train.init_from=" + run_directory(run)})).problems,
            std::vector<std::string>());
}

TEST_F(Plan, NamesTooManyRanks) {
  expect_problem(planned(config(), 7), {"7 ranks for the 6 rows of a step"});
}

TEST_F(Plan, NamesADirectoryThatCannotBeMade) {
  const RunConfig run = config({"output_dir=" + (directory_ / "train_0.bin")});
  expect_problem(planned(run), {"train_0.bin", "is not a directory"});
  EXPECT_TRUE(verdict_json(run, planned(run)).at("disk").at("free_bytes").is_null());
}

TEST_F(Plan, NamesADiskWithoutRoom) {
  const RunConfig run = config(
      {"train.steps=1000000000", "checkpoint.every_steps=1", "checkpoint.keep_last=1000000000"});
  expect_problem(planned(run), {"checkpoints need up to", "checkpoint.keep_last"});
}

// --- disk ----------------------------------------------------------------------------------------

TEST_F(Plan, BytesOfACheckpointAreThoseOfItsTensors) {
  const RunConfig run =
      config({"train.steps=1", "precision.weights=nvfp4", "precision.compute=fp8"});
  train(run);
  const int64_t file =
      posix_file_system().file_size(checkpoint_path(run, 1) + "/rank_00000_of_00001.safetensors");
  const int64_t planned_bytes = checkpoint_bytes(run, *make_device(run.device));
  const SafetensorsReader reader(posix_file_system(),
                                 checkpoint_path(run, 1) + "/rank_00000_of_00001.safetensors");
  int64_t stored = 0;
  for (const SafetensorsReader::Entry& entry : reader.tensors()) stored += entry.bytes();
  EXPECT_EQ(planned_bytes, stored);
  EXPECT_LT(planned_bytes, file);
}

// Compared with a count, step by step, by the code that prunes them.
TEST_F(Plan, CheckpointsAreCountedAsTheyArePruned) {
  for (const int64_t steps : {1, 9, 10, 24, 25})
    for (const int64_t every : {0, 1, 2, 5, 30})
      for (const int64_t keep_last : {1, 2, 7})
        for (const int64_t others : {int64_t{0}, 2 * every}) {
          RunConfig run = config();
          run.train.steps = steps;
          run.checkpoint = {
              .every_steps = every, .keep_last = keep_last, .keep_every_steps = others};
          std::vector<int64_t> there;
          size_t most = 0;
          for (int64_t step = 1; step <= steps; ++step) {
            if (step != steps && (every == 0 || step % every != 0)) continue;
            there.push_back(step);
            most = std::max(most, there.size());
            for (const int64_t gone : steps_to_prune(there, {keep_last, others}))
              std::erase(there, gone);
          }
          SCOPED_TRACE(fmt::format("{} steps, every {}, last {}, others {}", steps, every,
                                   keep_last, others));
          EXPECT_EQ(checkpoints_kept(run), std::ssize(there));
          EXPECT_GE(checkpoints_at_most(run), int64_t(most));
          EXPECT_LE(checkpoints_at_most(run), int64_t(most) + 1);
        }
}

// One at the end of every phase.
TEST_F(Plan, CheckpointsAtTheEndsOfPhasesAreCounted) {
  for (const int64_t every : {0, 1, 5, 10, 30})
    for (const int64_t keep_last : {1, 2, 9})
      for (const int64_t others : {int64_t{0}, 2 * every}) {
        RunConfig run = config({R"(phases=[{"until": 0.33}, {"until": 0.5}, {"until": 1}])"});
        run.train.steps = 30;
        run.checkpoint = {.every_steps = every, .keep_last = keep_last, .keep_every_steps = others};
        const std::vector<RunPhase> phases = run_phases(run);
        std::vector<int64_t> all, there;
        for (const RunPhase& phase : phases)
          for (int64_t step = phase.first_step + 1; step <= phase.last_step; ++step) {
            if (!is_due(phase, step, every)) continue;
            all.push_back(step);
            there.push_back(step);
            for (const int64_t gone : steps_to_prune(there, {keep_last, others}))
              std::erase(there, gone);
          }
        SCOPED_TRACE(fmt::format("every {}, last {}, others {}", every, keep_last, others));
        EXPECT_EQ(checkpoints_kept(run), std::ssize(there));
        const DueSteps due(run, every);
        EXPECT_EQ(due.count(), std::ssize(all));
        for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(due.step(int64_t(i) + 1), all[i]);
        run.eval.every_steps = every;
        EXPECT_EQ(evaluations(run), std::ssize(all));
      }
}

// --- time ----------------------------------------------------------------------------------------

TEST_F(Plan, ASampleIsTheRunWhereThatIsQuick) {
  const RunConfig run = config(), sample = sample_of(run, 1e12);
  EXPECT_EQ(sample.model, run.model);
  EXPECT_EQ(sample.batch.tokens_per_step, 3 * 16);
}

TEST_F(Plan, ASampleOfEveryShippedConfigIsSmallAndValid) {
  for (const char* name :
       {"1b_fp8", "350m_nvfp4", "60m_bf16_apollo_e", "nano_bf16_fp8", "pico_fp32_adamw"}) {
    SCOPED_TRACE(name);
    const RunConfig run = load_run_config(kConfigs + name + ".json", {"device.type=cpu"});
    const RunConfig sample = sample_of(run, 1e9);
    EXPECT_NO_THROW(validate(sample));
    EXPECT_LT(flops_per_step(sample), 4e9);
    EXPECT_LE(flops_per_step(sample), flops_per_step(run));
  }
}

TEST_F(Plan, TimeGrowsWithTheRunAndCountsEvaluations) {
  EXPECT_EQ(evaluations(config()), 5);  // 5, 10, 15, 20, 24
  EXPECT_EQ(evaluations(config({"eval.every_steps=0"})), 1);
  EXPECT_EQ(evaluations(config({"data.validation=[]"})), 0);
  const RunConfig run = config({"train.steps=1000000", "data.validation=[]"});
  const TimeEstimate time = estimate_time(run, *make_device(run.device));
  ASSERT_TRUE(time.seconds);
  EXPECT_DOUBLE_EQ(*time.seconds, 1e6 * time.seconds_per_step);
  EXPECT_NE(time.basis.find("GFLOP/s measured now (3 rows of 16 tokens)"), std::string::npos)
      << time.basis;
}

TEST_F(Plan, SaysAboutHowLong) {
  EXPECT_EQ(about(0.32), "about 0.3 s");
  EXPECT_EQ(about(42), "about 42 s");
  EXPECT_EQ(about(12 * 60), "about 12 min");
  EXPECT_EQ(about(3.5 * 3600), "about 3.5 h");
  EXPECT_EQ(about(30 * 3600), "about 30 h");
  EXPECT_EQ(about(20 * 86400.0), "about 20 days");
  EXPECT_EQ(about(2.1 * 365.25 * 86400), "about 2.1 years");
}

}  // namespace
}  // namespace mpt::test
