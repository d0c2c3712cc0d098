// Steps of runs, recomputed from their checkpoints: rates, gradients and their norm, the mean of
// the weights, the order of the data.
#include <cmath>

#include <gtest/gtest.h>

#include "checkpoint/checkpoint_files.h"
#include "config/run_paths.h"
#include "model/parameters.h"
#include "support/expect_error.h"
#include "support/ranks_run.h"
#include "support/temp_directory.h"
#include "train/adamw_run.h"

namespace mpt::test {
namespace {

using Overrides = std::vector<std::string>;

class RunSteps : public testing::Test {
 protected:
  void SetUp() override { write_tiny_data(path()); }
  [[nodiscard]] const std::string& path() const { return directory_.path(); }
  RunConfig run(const std::string& name, const Overrides& more = {}, int64_t ranks = 1) const {
    Overrides all = kAdamWRun;
    all.emplace_back("device.threads=1");
    all.insert(all.end(), more.begin(), more.end());
    const RunConfig config = tiny_config(path(), name, all);
    train_on(ranks, config);
    return config;
  }
  TempDirectory directory_{memory_directory()};
};

TEST_F(RunSteps, MoveWeightsByTheScheduledRate) {
  const RunConfig config = run("run");
  const auto records = records_of(config);
  for (int64_t step = 1; step <= kTinySteps; ++step) {
    EXPECT_DOUBLE_EQ(records.at(step).at("lr"), adamw_run_rate(step));
    if (step > 1) expect_adamw_update(config, step, step);
  }
}

// Without momentum, the first moment is the clipped gradient.
const Overrides kGradientIsSaved{"optimizer.beta1=0", "optimizer.clip_grad_norm=0"};

double saved_gradient_norm(const RunConfig& config, int64_t step) {
  double squares = 0;
  for (const ParamSpec& parameter : llama_parameters(config.model))
    for (const double g : saved_values(config, step, "m/" + parameter.name)) squares += g * g;
  return std::sqrt(squares);
}

// Sums of squares, in FP64, of FP32 numbers.
constexpr double kNormTolerance = 1e-6;

TEST_F(RunSteps, TellTheNormOfTheGradient) {
  Overrides clipped = kGradientIsSaved;
  clipped.emplace_back("optimizer.clip_grad_norm=0.01");
  for (const int64_t ranks : {1, 3}) {
    const RunConfig free = run(fmt::format("free{}", ranks), kGradientIsSaved);
    const RunConfig held = run(fmt::format("held{}", ranks), clipped);
    const double norm = records_of(free).at(1).at("grad_norm");
    EXPECT_NEAR(saved_gradient_norm(free, 1), norm, kNormTolerance * norm);
    EXPECT_EQ(records_of(held).at(1).at("grad_norm"), norm) << "before clipping";
    ASSERT_GT(norm, 0.02);
    for (const int64_t step : {int64_t{1}, int64_t{2}, kTinySteps})
      EXPECT_NEAR(saved_gradient_norm(held, step), 0.01, kNormTolerance * 0.01);
  }
}

// Six rows of documents, the same in every step: some targets are not predicted.
class SameRows : public RunSteps {
 protected:
  void SetUp() override { write_random_shard(path() + "/train_0.bin", 97, 5); }
  RunConfig run(const std::string& name, Overrides more, int64_t ranks = 1) const {
    more.insert(more.end(), {"data.attention=document", "data.validation=null"});
    const RunConfig config = RunSteps::run(name, more, ranks);
    const int64_t predicted =
        read_checkpoint_state(posix_file_system(), checkpoint_path(config, 1)).tokens;
    EXPECT_GT(predicted, 48);
    EXPECT_LT(predicted, 96 - 4);
    return config;
  }
};

// Loss of a model that knows nothing: all tokens are equally likely.
TEST_F(SameRows, HaveTheMeanLossOfThePredictedTokens) {
  for (const int64_t ranks : {1, 3}) {
    const RunConfig config =
        run(fmt::format("run{}", ranks),
            {"model.initializer_range=1e-6", "schedule.warmup_steps=0", "train.steps=1"}, ranks);
    EXPECT_NEAR(records_of(config).at(1).at("loss"), std::log(61), 1e-5);
  }
}

// The change of the loss matches its slope at both ends: the next term grows with the square of the
// rate.
TEST_F(SameRows, HaveTheGradientOfThatLoss) {
  for (const int64_t ranks : {1, 3}) {
    Overrides overrides = kGradientIsSaved;
    overrides.insert(overrides.end(), {"train.steps=6", "optimizer.lr_additive=1e-3"});
    const RunConfig config = run(fmt::format("run{}", ranks), overrides);
    const auto records = records_of(config);
    for (int64_t step = 2; step < 6; ++step) {
      const double change =
          records.at(step + 1).at("loss").get<double>() - records.at(step).at("loss").get<double>();
      double slope = 0;
      for (const ParamSpec& parameter : llama_parameters(config.model)) {
        const std::vector<float> before = saved_values(config, step - 1, parameter.name),
                                 after = saved_values(config, step, parameter.name),
                                 g = saved_values(config, step, "m/" + parameter.name),
                                 next = saved_values(config, step + 1, "m/" + parameter.name);
        for (size_t i = 0; i < g.size(); ++i)
          slope += 0.5 * (double(g[i]) + next[i]) * (double(after[i]) - before[i]);
      }
      EXPECT_NEAR(slope, change, 1e-2 * std::abs(change)) << step;
      EXPECT_LT(change, -1e-3) << step;
    }
  }
}

// docs/numerics.md "EMA of weights": three operations in FP32, not contracted.
TEST_F(RunSteps, AverageTheWeights) {
  const RunConfig config = run("run", {"train.ema_decay=0.8", "train.steps=6"});
  for (const ParamSpec& parameter : llama_parameters(config.model)) {
    std::vector<float> mean(size_t(parameter.rows * parameter.cols), 0);
    for (int64_t step = 1; step <= 6; ++step) {
      const auto part = float((1 - 0.8) / (1 - std::pow(0.8, double(step))));
      const std::vector<float> w = saved_values(config, step, parameter.name);
      for (size_t i = 0; i < mean.size(); ++i) {
        const volatile float move = part * (w[i] - mean[i]);
        mean[i] += move;
      }
      ASSERT_EQ(saved_values(config, step, "ema/" + parameter.name), mean) << parameter.name;
    }
  }
}

// Ranks that begin with other weights, each updating all of its own.
TEST_F(RunSteps, RanksThatDifferAreFound) {
  const RunConfig config =
      tiny_config(path(), "run", {"distributed.sharding=none", "distributed.check_every_steps=2"});
  posix_file_system().create_directories(run_directory(config));
  RunConfig other = config;
  other.seed = 8;
  int64_t steps = 0;
  EXPECT_ERROR(on_ranks(config, 2,
                        [&](RankOfRun& rank) {
                          const bool first = rank.ranks.is_root();
                          rank.ranks.or_abort([&] {
                            Trainer trainer(first ? config : other, *rank.device,
                                            posix_file_system(), rank.ranks);
                            trainer.initialize();
                            try {
                              trainer.run();
                            } catch (...) {
                              if (first) steps = trainer.current_step();
                              throw;
                            }
                          });
                        }),
               "'model.embed_tokens.weight' differs between rank");
  EXPECT_EQ(steps, 2);
}

TEST_F(RunSteps, ReadTheRowsOfTheirSeed) {
  const SequenceSource rows({.patterns = {path() + "/train_*.bin"},
                             .seq_len = 16,
                             .shuffle = Shuffle::kYes,
                             .seed = 7,
                             .vocab_size = kTinyVocab});
  for (const int64_t ranks : {1, 3}) {
    const auto records = records_of(run(fmt::format("run{}", ranks), {"seed=7"}, ranks));
    for (int64_t step = 1; step <= kTinySteps; ++step)
      EXPECT_EQ(records.at(step).at("data_hash"),
                fmt::format("{:016x}", read_batch(rows, 6 * (step - 1), 6).hash))
          << step;
  }
}

}  // namespace
}  // namespace mpt::test
