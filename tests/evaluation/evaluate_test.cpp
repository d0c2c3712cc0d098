// The two means of an evaluation: their values, and that neither depends on how ranks share the
// rows.
#include "evaluation/evaluate.h"

#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "config/run_device.h"
#include "support/expect_error.h"
#include "support/ranks_run.h"
#include "support/temp_directory.h"

namespace mpt::test {
namespace {

// Every number below is a dyadic fraction, and so are the sums: nothing is rounded before the last
// division.
TEST(FamilyLoss, IsTheSumOfBatchMeansOverOneMoreThanTheirNumber) {
  const std::vector<double> losses{6, 2, 10, 5, 1.5};
  const std::vector<int64_t> targets{2, 2, 4, 1, 3};
  EXPECT_EQ(galore_loss(losses, targets, 1), (3 + 1 + 2.5 + 5 + 0.5) / 6);
  EXPECT_EQ(galore_loss(losses, targets, 2), (8.0 / 4 + 15.0 / 5 + 1.5 / 3) / 4);
  EXPECT_EQ(galore_loss(losses, targets, 4), (23.0 / 9 + 0.5) / 3);
  for (const int64_t all : {5, 6, 1 << 30})
    EXPECT_EQ(galore_loss(losses, targets, all), 24.5 / 12 / 2);
}

TEST(FamilyLoss, LeavesOutBatchesWithoutATarget) {
  const std::vector<double> losses{6, 0, 0, 0, 2};
  const std::vector<int64_t> targets{2, 0, 0, 0, 4};
  EXPECT_EQ(galore_loss(losses, targets, 1), 3.5 / 3);
  EXPECT_EQ(galore_loss(losses, targets, 2), (3 + 0.5) / 3);
  EXPECT_EQ(galore_loss(losses, targets, 3), (3 + 0.5) / 3);
}

TEST(FamilyLoss, NeedsRowsAndACountOfEach) {
  const std::vector<double> losses{1, 2};
  const std::vector<int64_t> targets{1, 1};
  EXPECT_THROW((void)galore_loss(losses, targets, 0), LogicError);
  EXPECT_THROW((void)galore_loss(losses, std::span(targets).first(1), 1), LogicError);
}

// Uses weights that do not move. 7 rows of validation in batches of 3, the micro-batch of one rank;
// two ranks have 4 and 3 of the rows, three 3, 2 and 2.
TEST(Evaluate, GivesTheSameMeansOnAnyNumberOfRanks) {
  const TempDirectory directory{memory_directory()};
  write_tiny_data(directory.path());
  const auto last_record = [&](int64_t ranks, const std::string& more) {
    const RunConfig config =
        tiny_config(directory.path(), fmt::format("r{}_{}", ranks, more),
                    {"optimizer.lr_additive=0", "optimizer.lr_multiplicative=0", "train.steps=1",
                     "device.threads=1", more});
    train_on(ranks, config);
    return records_of(config).at(1);
  };
  for (const std::string more : {"eval.galore_batch_rows=0", "eval.galore_batch_rows=2"}) {
    const nlohmann::json one = last_record(1, more);
    for (const int64_t ranks : {2, 3}) {
      const nlohmann::json several = last_record(ranks, more);
      for (const char* key : {"val_loss", "val_loss_family", "val_tokens"})
        EXPECT_EQ(several.at(key), one.at(key)) << key << " of " << ranks << " ranks, " << more;
    }
    EXPECT_EQ(one.at("val_tokens"), 7 * 16);
    const double n = more == "eval.galore_batch_rows=2" ? 4 : 3;
    EXPECT_NEAR(one.at("val_loss_family").get<double>() / one.at("val_loss").get<double>(),
                n / (n + 1), 0.02);
  }
}

// A model on validation data, with random weights.
struct RandomWorld {
  RunConfig config;
  std::unique_ptr<Device> device = make_device(config.device);
  std::unique_ptr<Allocator> allocator = device->make_allocator();
  TrainingModel model{config, *device, *allocator};
  std::vector<ValidationSet> sets = open_validation_data(config);

  explicit RandomWorld(const RunConfig& of) : config(of) {
    initialize_weights(model.weights, 0.1, 1, *device);
    model.weights_changed();
  }
};

// Targets past the end of a document count neither as losses nor as tokens. All sums are of fewer
// than 2^8 numbers, so another order changes at most 2^-45 of one in FP64.
TEST(Evaluate, IsTheMeanOverTheTargetsThatCount) {
  const TempDirectory directory{memory_directory()};
  write_tiny_data(directory.path());
  std::vector<std::string> overrides = kDocumentOverrides;
  overrides.emplace_back("device.threads=1");
  RandomWorld world(tiny_config(directory.path(), "documents", overrides));
  const SequenceSource& rows = *world.sets.at(0).rows;
  double sum = 0;
  int64_t targets = 0, positions = 0;
  for (int64_t i = 0; i < rows.sequences(); ++i) {
    const Batch batch = read_batch(rows, i, 1);
    world.model.llama.evaluate({batch.tokens, batch.targets, batch.document_begin});
    const std::span<const float> losses = world.model.llama.token_losses();
    for (size_t t = 0; t < batch.targets.size(); ++t) {
      ++positions;
      if (batch.targets[t] < 0) continue;
      sum += double(losses[t]);
      ++targets;
    }
  }
  ASSERT_LT(targets, positions);
  ASSERT_LT(targets, 1 << 8);
  const ValidationResult result = evaluate(
      world.model.llama, world.sets, {.rows_per_batch = 3, .tokens = 1000, .galore_batch_rows = 2});
  const double loss = sum / double(targets);
  EXPECT_EQ(result.all.tokens, targets);
  EXPECT_NEAR(result.all.loss, loss, loss * 0x1p-45);
  const nlohmann::ordered_json json = validation_json(result);
  EXPECT_EQ(json.at("val_tokens"), targets);
  EXPECT_EQ(json.at("val_loss"), result.all.loss);
  EXPECT_DOUBLE_EQ(json.at("val_perplexity").get<double>(),
                   std::exp(json.at("val_loss").get<double>()));
}

// All ranks leave if one does, and a whole evaluation afterward is unchanged.
TEST(Evaluate, IsLeftByAllRanks) {
  const TempDirectory directory{memory_directory()};
  write_tiny_data(directory.path());
  const RunConfig config = tiny_config(directory.path(), "left", {"device.threads=1"});
  for (const int64_t ranks : {1, 3})
    on_ranks(config, ranks, [&](RankOfRun& rank) {
      rank.ranks.or_abort([&] {
        const auto allocator = rank.device->make_allocator();
        TrainingModel model(config, *rank.device, *allocator, rank.ranks);
        initialize_weights(model.weights, 0.1, 1, *rank.device);
        model.weights_changed();
        const std::vector<ValidationSet> sets = open_validation_data(config);
        EvaluationOptions options{
            .rows_per_batch = 1, .tokens = 1000, .galore_batch_rows = 2, .ranks = rank.ranks};
        const double before = evaluate(model.llama, sets, options).all.loss;
        int asked = 0;
        options.leave = [&] { return ++asked == 1 && rank.ranks.is_root(); };
        EXPECT_THROW(evaluate(model.llama, sets, options), EvaluationLeft);
        const int64_t rows = slice_of(9, rank.ranks.rank(), ranks).rows;
        EXPECT_EQ(asked, rank.ranks.is_root() ? 1 : rows) << "batches of a row";
        options.leave = [] { return false; };
        EXPECT_EQ(evaluate(model.llama, sets, options).all.loss, before);
      });
    });
}

}  // namespace
}  // namespace mpt::test
