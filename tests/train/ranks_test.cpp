// Training with several ranks matches one rank: the same data, the same weights on every rank, and
// the same loss up to the order of sums.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <set>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>

#include "config/run_device.h"
#include "config/run_paths.h"
#include "optim/rule_list.h"
#include "support/expect_error.h"
#include "support/ranks_run.h"
#include "support/temp_directory.h"

namespace mpt::test {
namespace {

struct Setting {
  std::string name;
  std::vector<std::string> overrides;
};
void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }

// FP8 scales are updated once per step, so that nothing but the order of sums depends on how rows
// are split.
const std::vector<Setting> kRegimes{
    {"fp32", {"precision.weights=fp32", "precision.compute=fp32", "precision.gradient=fp32"}},
    {"bf16", {}},
    {"bf16_fp8",
     {"precision.compute=fp8", "precision.fp8_history=3", "precision.fp8_amax_update=step"}},
    {"fp8",
     {"precision.weights=block_fp8", "precision.compute=fp8", "precision.fp8_history=3",
      "precision.fp8_amax_update=step"}},
    {"nvfp4",
     {"precision.weights=nvfp4", "precision.compute=fp8", "precision.fp8_history=3",
      "precision.fp8_amax_update=step"}},
    {"mxfp8",
     {"precision.weights=mxfp8", "precision.compute=fp8", "precision.fp8_history=3",
      "precision.fp8_amax_update=step"}},
    {"nvfp4_block_rates",
     {"precision.weights=nvfp4", "optimizer.nvfp4_additive_scale=block", "train.ema_decay=0.9"}},
};
const std::vector<Setting> kOptimizers{
    {"adamw", {"optimizer.rule=adamw", "optimizer.lr_multiplicative=null"}},
    {"adamw_sr",
     {"optimizer.rule=adamw", "optimizer.lr_multiplicative=null",
      "optimizer.weight_rounding=stochastic"}},
    {"adamw_kahan",
     {"optimizer.rule=adamw", "optimizer.lr_multiplicative=null",
      "optimizer.weight_rounding=kahan"}},
    {"additive_twin", {"optimizer.rule=additive_twin", "optimizer.lr_multiplicative=null"}},
    {"lion", {"optimizer.rule=lion", "optimizer.lr_multiplicative=null"}},
    {"muon", {"optimizer.rule=muon", "optimizer.lr_multiplicative=null"}},
    {"madam", {"optimizer.rule=madam", "optimizer.lr_additive=null", "optimizer.g_bound=1"}},
    {"m_plus_adam", {}},
    {"m_plus_adam_kahan", {"optimizer.weight_rounding=kahan"}},
    {"m_plus_adam_master", {"optimizer.weight_rounding=master"}},
    {"adamw_fed_back",
     {"optimizer.rule=adamw", "optimizer.lr_multiplicative=null",
      "optimizer.error_feedback=momentum"}},
    {"apollo_e",
     {"optimizer.apollo_e=channel", "optimizer.apollo_e_rank=3", "optimizer.apollo_e_gap=2"}},
};

constexpr int64_t kSteps = 8;

std::vector<Setting> regimes_and_optimizers() {
  std::vector<Setting> all;
  for (const Setting& regime : kRegimes)
    for (const Setting& optimizer : kOptimizers) {
      if (optimizer.name.ends_with("kahan") && !regime.name.starts_with("bf16")) continue;
      if (optimizer.name.ends_with("master") && regime.name == "fp32") continue;
      if (optimizer.name.ends_with("fed_back") && regime.name.ends_with("block_rates")) continue;
      if (optimizer.name == "madam" && regime.name == "nvfp4_block_rates") continue;
      Setting both{regime.name + "_" + optimizer.name, regime.overrides};
      both.overrides.insert(both.overrides.end(), optimizer.overrides.begin(),
                            optimizer.overrides.end());
      all.push_back(both);
    }
  return all;
}

std::vector<std::string> with_documents(std::vector<std::string> overrides) {
  overrides.insert(overrides.end(), kDocumentOverrides.begin(), kDocumentOverrides.end());
  return overrides;
}

// Documents that do not attend to each other; and grouped queries, normed heads and a tied matrix,
// whose gradient comes from both ends.
std::vector<Setting> family() {
  const std::vector<std::string> fp8{"precision.compute=fp8", "precision.fp8_history=3",
                                     "precision.fp8_amax_update=step", "precision.fp8_lm_head=true",
                                     "model.vocab_size=64"};
  std::vector<std::string> nvfp4 = fp8;
  nvfp4.emplace_back("precision.weights=nvfp4");
  const std::vector<std::string> recomputed{"precision.compute=fp8", "precision.fp8_recipe=current",
                                            "train.activation_recompute=block"};
  return {{"family_fp32", with_family(kRegimes[0].overrides)},
          {"family_bf16", with_family({})},
          {"family_bf16_muon", with_family(kOptimizers[5].overrides)},
          {"family_bf16_fp8_head", with_family(fp8)},
          {"family_nvfp4_fp8_head", with_family(nvfp4)},
          {"family_recomputed", with_family(recomputed)},
          {"documents_fp32", with_documents(kRegimes[0].overrides)},
          {"documents_bf16_fp8", with_documents(recomputed)}};
}

class Directory {
 public:
  Directory() { write_tiny_data(directory_.path()); }

  // Steps whose arithmetic does not depend on how their rows are split, except for the order of
  // sums: FP8 scales are updated once per step.
  [[nodiscard]] RunConfig config(const std::string& name,
                                 const std::vector<std::string>& more) const {
    std::vector<std::string> overrides{fmt::format("train.steps={}", kSteps),
                                       "checkpoint.every_steps=4",
                                       "eval.every_steps=4",
                                       "optimizer.lr_additive=1e-3",
                                       "optimizer.lr_multiplicative=1e-3",
                                       "distributed.check_every_steps=1",
                                       "distributed.bucket_mib=1",
                                       "device.threads=1"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    return tiny_config(directory_.path(), name, overrides);
  }
  [[nodiscard]] const std::string& path() const { return directory_.path(); }

 private:
  TempDirectory directory_{memory_directory()};
};

std::vector<double> losses_of(const RunConfig& config) {
  std::vector<double> losses;
  for (const auto& [step, record] : records_of(config))
    losses.push_back(record.at("loss").get<double>());
  return losses;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::fabs(a[i] - b[i]));
  return largest;
}

class RanksOf : public testing::TestWithParam<Setting> {};

// The allowed deviation of several ranks is that of one rank on the same rows in other
// micro-batches, which is another order of the same sums. FP32 sums of some hundred terms add 2^-24
// each to a loss of about 4; rounding to the formats below then occasionally goes the other way.
TEST_P(RanksOf, FollowTheLossOfOne) {
  const Directory directory;
  const auto run = [&](int64_t ranks, int64_t micro_batch_rows) {
    std::vector<std::string> overrides = GetParam().overrides;
    overrides.push_back(fmt::format("batch.micro_batch_rows={}", micro_batch_rows));
    const RunConfig config =
        directory.config(fmt::format("r{}_m{}", ranks, micro_batch_rows), overrides);
    train_on(ranks, config);
    return losses_of(config);
  };
  const std::vector<double> one = run(1, 3), two = run(2, 3), three = run(3, 2);
  ASSERT_EQ(one.size(), size_t(kSteps));
  const double other_order =
      std::max(largest_difference(one, run(1, 1)), largest_difference(one, run(1, 2)));
  const double bound = 4 * other_order + 256 * 4 * std::ldexp(1.0, -24);
  EXPECT_LE(largest_difference(one, two), bound);
  EXPECT_LE(largest_difference(one, three), bound);
  EXPECT_NE(one.front(), one.back());
}
INSTANTIATE_TEST_SUITE_P(All, RanksOf, testing::ValuesIn(regimes_and_optimizers()),
                         [](const auto& instance) { return instance.param.name; });
INSTANTIATE_TEST_SUITE_P(Family, RanksOf, testing::ValuesIn(family()),
                         [](const auto& instance) { return instance.param.name; });

std::vector<std::string> hashes_of(const RunConfig& config) {
  std::vector<std::string> hashes;
  for (const auto& [step, record] : records_of(config))
    hashes.push_back(record.at("data_hash").get<std::string>());
  return hashes;
}

// 1 -> 2 -> 3 -> 1 ranks: no sample is repeated or skipped, and the state passes through every
// split unchanged.
TEST(Ranks, AChainOfNumbersOfRanksIsOneRun) {
  const Directory directory;
  const RunConfig whole = directory.config("whole", {});
  train(whole);
  const RunConfig chain = directory.config("chain", {});
  const std::vector<std::pair<int64_t, int64_t>> links{{1, 2}, {2, 4}, {3, 6}, {1, kSteps}};
  std::string from;
  for (const auto& [ranks, until] : links) {
    RunConfig link = chain;
    link.checkpoint.every_steps = 1;
    link.train.steps = until;
    link.schedule = whole.schedule;
    train_on(ranks, link, from);
    from = checkpoint_path(chain, until);
  }
  EXPECT_EQ(hashes_of(chain), hashes_of(whole));
  const std::vector<std::string> hashes = hashes_of(whole);
  EXPECT_EQ(std::set(hashes.begin(), hashes.end()).size(), hashes.size());
}

TEST(Ranks, AStateIsTheSameThroughEveryCut) {
  const Directory directory;
  const RunConfig config = directory.config(
      "run", {"checkpoint.every_steps=1", "checkpoint.keep_last=100", "train.ema_decay=0.9"});
  train_on(3, config);
  const std::string saved = state_at(config, 4);
  for (const int64_t ranks : {1, 2, 4}) {
    RunConfig again = config;
    again.name = fmt::format("again{}", ranks);
    again.train.steps = 4;  // nothing to do but load
    train_on(ranks, again, checkpoint_path(config, 4));
    EXPECT_FALSE(posix_file_system().exists(checkpoint_path(again, 5)));
    again.train.steps = 5;
    train_on(ranks, again, checkpoint_path(config, 4));
    EXPECT_EQ(hashes_of(again).back(), hashes_of(config)[4]);
  }
  EXPECT_TRUE(state_at(config, 4) == saved);
}

// Resumed with the same number of ranks, a run is bit-identical to the uninterrupted one.
TEST(Ranks, AResumedRunIsTheSameToTheBit) {
  const Directory directory;
  const std::vector<std::string> overrides{"precision.weights=nvfp4", "train.ema_decay=0.9"};
  for (const int64_t ranks : {2, 3}) {
    const RunConfig whole = directory.config(fmt::format("whole{}", ranks), overrides);
    train_on(ranks, whole);
    const RunConfig part = directory.config(fmt::format("part{}", ranks), overrides);
    train_on(ranks, part, checkpoint_path(whole, 4));
    EXPECT_TRUE(state_at(part, kSteps) == state_at(whole, kSteps));
    EXPECT_TRUE(metrics_of(whole).ends_with(metrics_of(part)));
  }
}

// The location of the states changes nothing.
TEST(Ranks, ShardedIsReplicated) {
  const Directory directory;
  for (const Setting& regime : kRegimes)
    for (const auto* reduce : {"bf16", "fp32"}) {
      const auto state = [&](const std::string& name, const std::string& key) {
        std::vector<std::string> overrides = regime.overrides;
        overrides.push_back(fmt::format("distributed.gradient_reduce={}", reduce));
        overrides.push_back(key);
        const RunConfig config =
            directory.config(fmt::format("{}_{}_{}", regime.name, reduce, name), overrides);
        train_on(2, config);
        return state_at(config, kSteps);
      };
      EXPECT_TRUE(state("sharded", "distributed.sharding=optimizer") ==
                  state("replicated", "distributed.sharding=none"))
          << regime.name << reduce;
    }
}

// Computation runs ahead of every exchange that it does not wait for.
class SlowTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;

  void reduce_scatter_sum(std::span<const Tensor> parts, const Tensor& sum) override {
    std::this_thread::sleep_for(kDelay);
    inner_.reduce_scatter_sum(parts, sum);
  }
  void all_gather(std::span<const Tensor> parts) override {
    std::this_thread::sleep_for(kDelay);
    inner_.all_gather(parts);
  }

 private:
  static constexpr std::chrono::milliseconds kDelay{5};
};

void train_slow_ranks(const RunConfig& config) {
  posix_file_system().create_directories(run_directory(config));
  run_ranks(2, [&](Transport& transport) {
    SlowTransport slow(transport);
    RankOfRun rank{slow, make_device(config.device)};
    train_rank(rank, config);
  });
}

// Nor does the number of buckets for gradients and weights, however long they take.
TEST(Ranks, SeveralBucketsAreOne) {
  const Directory directory;
  for (const auto* weights : {"bf16", "nvfp4"})
    for (const auto* sharding : {"optimizer", "none"}) {
      const auto config = [&](int64_t mib) {
        return directory.config(
            fmt::format("{}_{}_{}", weights, sharding, mib),
            {"train.steps=3", "checkpoint.every_steps=3", "batch.micro_batch_rows=2",
             "model.hidden_size=128", "model.intermediate_size=512",
             "distributed.gradient_reduce=fp32", fmt::format("precision.weights={}", weights),
             fmt::format("distributed.sharding={}", sharding),
             fmt::format("distributed.bucket_mib={}", mib)});
      };
      const auto buckets = [](const RunConfig& of) {
        const auto device = make_device(of.device);
        return exchange_plan(of, *device, Communicator::planned(0, 2)).buckets.size();
      };
      const RunConfig several = config(1), one = config(1024);
      ASSERT_EQ(buckets(several), 3U);
      ASSERT_EQ(buckets(one), 1U);
      train_slow_ranks(several);
      train_slow_ranks(one);
      EXPECT_TRUE(state_at(several, 3) == state_at(one, 3)) << weights << sharding;
      EXPECT_EQ(metrics_of(several), metrics_of(one)) << weights << sharding;
    }
}

// Weights updated by others are cast once they arrive.
TEST(Ranks, CodesOfOneLayerChangeNoBits) {
  const Directory directory;
  for (const auto* weights : {"bf16", "nvfp4"}) {
    const auto state = [&](const std::string& codes) {
      const RunConfig config =
          directory.config(fmt::format("{}_{}", weights, codes),
                           {fmt::format("precision.weights={}", weights), "precision.compute=fp8",
                            "precision.fp8_history=3", "batch.micro_batch_rows=1",
                            "device.type=cpu", "device.fp8_weight_codes=" + codes});
      train_on(2, config);
      return state_at(config, kSteps);
    };
    EXPECT_TRUE(state("one_layer") == state("all_layers")) << weights;
  }
}

// A rank sends exactly the amount reported by `plan`.
TEST(Ranks, SendWhatIsPlanned) {
  const Directory directory;
  for (const Setting& regime : kRegimes)
    for (const auto* sharding : {"optimizer", "none"}) {
      std::vector<std::string> overrides = regime.overrides;
      overrides.push_back(fmt::format("distributed.sharding={}", sharding));
      const RunConfig config = directory.config(regime.name, overrides);
      on_ranks(config, 3, [&](RankOfRun& rank) {
        const auto allocator = rank.device->make_allocator();
        const BatchPlan batch = batch_plan(config.batch, rank.ranks.rank(), rank.ranks.size());
        TrainingModel model(config, *rank.device, *allocator, rank.ranks);
        initialize_weights(model.weights, 0.1, 1, *rank.device);
        model.weights_changed();
        model.optimizer.weights_initialized();
        const std::vector<int32_t> tokens(size_t(batch.own.rows * config.batch.seq_len), 7);
        model.llama.stage({tokens, tokens}, 0.01f);
        model.optimizer.prepare({.t = 1});
        DeviceStep work(model, batch, *rank.device);
        const int64_t before = rank.transport.bytes_sent();
        work.enqueue();
        model.follow_weights(1);
        const int64_t sent = rank.transport.bytes_sent() - before;
        EXPECT_EQ(sent, exchange_plan(config, *rank.device, rank.ranks).volume.total())
            << regime.name << sharding;
      });
    }
}

// The buckets listed by `plan` are what all ranks send, and contain each rank's part once.
TEST(Ranks, PlannedBucketsAddUpToWhatIsSent) {
  constexpr int64_t kRanks = 3;
  const Directory directory;
  for (const Setting& regime : kRegimes)
    for (const auto* sharding : {"optimizer", "none"}) {
      std::vector<std::string> overrides = regime.overrides;
      overrides.push_back(fmt::format("distributed.sharding={}", sharding));
      const RunConfig config = directory.config(regime.name, overrides);
      const auto device = make_device(config.device);
      ExchangeVolume sent;
      int64_t elements = 0, reduced = 0, gathered = 0, norm_sums = 0, spans = 0, own_spans = 0;
      for (int64_t rank = 0; rank < kRanks; ++rank) {
        const ExchangePlan plan =
            exchange_plan(config, *device, Communicator::planned(rank, kRanks));
        sent.gradients += plan.volume.gradients;
        sent.weights += plan.volume.weights;
        sent.norm += plan.volume.norm;
        elements += plan.own_elements;
        EXPECT_LE(plan.own_elements, plan.most_elements);
        for (const BucketSummary& bucket : plan.buckets) {
          reduced += bucket.reduced.bytes;
          gathered += bucket.gathered.bytes;
          norm_sums += bucket.norm_sums;
          spans += bucket.gathered.spans;
          own_spans += bucket.gathered.own_spans;
          EXPECT_GE(bucket.reduced.largest_part_bytes * kRanks, bucket.reduced.bytes);
          EXPECT_LE(bucket.gathered.cut_spans, bucket.gathered.spans);
        }
      }
      // Each rank reports all parts, and every part goes to all ranks but one.
      const std::string what = regime.name + sharding;
      const bool sharded = config.distributed.sharding == Sharding::kOptimizer;
      EXPECT_EQ(elements, parameter_count(config.model)) << what;
      EXPECT_EQ(own_spans * kRanks, spans) << what;
      EXPECT_EQ(sent.gradients * kRanks, (kRanks - 1) * (reduced + (sharded ? 0 : gathered)))
          << what;
      const int64_t fetched = config.train.ema_decay > 0 ? 2 * gathered : gathered;
      EXPECT_EQ(sent.weights * kRanks, sharded ? (kRanks - 1) * fetched : 0) << what;
      EXPECT_EQ(sent.norm * kRanks, sharded ? (kRanks - 1) * norm_sums * size_of(DType::kF64) : 0)
          << what;
    }
}

// One rank has the same parts as several, and they cost it nothing.
TEST(Ranks, OneExchangesNothing) {
  const Directory directory;
  for (const Setting& regime : kRegimes) {
    const RunConfig config = directory.config(regime.name, regime.overrides);
    const auto device = make_device(config.device);
    const auto allocator = device->make_allocator();
    TrainingModel model(config, *device, *allocator);
    EXPECT_EQ(model.partition.ranks(), 1);
    EXPECT_EQ(model.data_parallel.volume().total(), 0);
    EXPECT_EQ(allocator->use().total(), planned_memory(config, *device).total());
    const std::vector<TensorPart> parts = model.parts_to_save();
    EXPECT_TRUE(std::ranges::all_of(parts, &TensorPart::is_whole)) << regime.name;
  }
}

TEST(Ranks, WeightsTravelAsTheyAreStored) {
  const Directory directory;
  const auto weights = [&](const std::string& format) {
    const RunConfig config = directory.config(
        format, {"precision.weights=" + format, "model.hidden_size=128",
                 "model.intermediate_size=512", "distributed.gradient_reduce=bf16"});
    const auto device = make_device(config.device);
    return double(exchange_plan(config, *device, Communicator::planned(0, 2)).volume.weights);
  };
  const double bf16 = weights("bf16");
  EXPECT_NEAR(bf16 / weights("block_fp8"), 1.9,
              0.1);  // one byte, and a scale per block; norms and embedding stay
  EXPECT_NEAR(bf16 / weights("mxfp8"), 1.9, 0.1);
  EXPECT_GT(bf16 / weights("nvfp4"), 2.9);
}

TEST(Ranks, MoreRanksThanRowsAreRefused) {
  const Directory directory;
  const RunConfig config = directory.config("run", {});
  EXPECT_ERROR(train_on(7, config), "7 ranks for the 6 rows of a step", "batch.tokens_per_step");
}

// After a gradient that is not finite, all ranks skip the step, stop or roll back. A rate of 1e30
// makes every weight infinite at the first step.
const std::vector<std::string> kExplodes{"optimizer.lr_additive=1e30"};

RunConfig exploding(const Directory& directory, std::vector<std::string> more) {
  more.insert(more.end(), kExplodes.begin(), kExplodes.end());
  return directory.config("run", more);
}

TEST(NonfiniteOnRanks, StopsAllByDefault) {
  const Directory directory;
  EXPECT_ERROR(train_on(2, exploding(directory, {})), "is not finite", "nonfinite_policy");
}

TEST(NonfiniteOnRanks, IsLeftOutByAll) {
  const Directory directory;
  const RunConfig config = exploding(directory, {"train.nonfinite_policy=skip_step"});
  train_on(2, config);
  int64_t skipped = 0;
  for (const auto& [step, record] : records_of(config))
    skipped += record.value("skipped", false) ? 1 : 0;
  EXPECT_EQ(skipped, kSteps - 1);
}

// With infinite weights, no further step is finite.
TEST(NonfiniteOnRanks, EndsTheRunThatIsRuined) {
  for (const int64_t ranks : {1, 2}) {
    const Directory directory;
    const RunConfig config =
        exploding(directory, {"train.nonfinite_policy=skip_step", "train.max_skipped_steps=3",
                              "checkpoint.every_steps=1", "checkpoint.keep_last=1"});
    EXPECT_ERROR(train_on(ranks, config), "step 4: ", "is not finite, the last of 3 such steps",
                 "train.max_skipped_steps", "Their last update was made in step 1",
                 "the last checkpoint is " + config.output_dir);  // of step 1, not of later ones
    EXPECT_TRUE(std::filesystem::exists(checkpoint_directory(config) + "/step_00000001"));
    EXPECT_EQ(std::ssize(records_of(config)), 4);
  }
}

TEST(NonfiniteOnRanks, RollbackNeedsACheckpoint) {
  const Directory directory;
  EXPECT_ERROR(train_on(2, exploding(directory, {"train.nonfinite_policy=rollback"})),
               "no checkpoint to roll back to");
}

// The run's directory is unchanged.
TEST(NonfiniteOnRanks, StepsThatAreOnlyMeasuredAreNotRolledBack) {
  const Directory directory;
  const RunConfig good = directory.config("run", {"train.steps=4"});
  train_on(1, good);
  const RunConfig config = exploding(directory, {"train.nonfinite_policy=rollback"});
  const std::string before = posix_file_system().read_file(metrics_path(config));
  const auto device = make_device(config.device);
  Trainer trainer(config, *device, posix_file_system());
  trainer.resume(checkpoint_path(good, 4));
  EXPECT_ERROR(trainer.run_unrecorded(5), "step 6", "is not finite", "only measured");
  EXPECT_EQ(posix_file_system().read_file(metrics_path(config)), before);
}

// Rolls back to step 4 and continues with other data, as often as allowed.
TEST(NonfiniteOnRanks, RollbackGoesOnBehindTheData) {
  for (const int64_t ranks : {1, 2}) {
    const Directory directory;
    const RunConfig good = directory.config("run", {"train.steps=4"});
    train_on(ranks, good);
    RunConfig config =
        directory.config("run", {"train.nonfinite_policy=rollback", "train.max_rollbacks=2"});
    const std::vector<std::string> before = hashes_of(good);
    keys_of<MPlusAdam::Config>(config.optimizer.rule).lr_additive =
        1e30;  // step 5 is made, step 6 is not finite
    EXPECT_ERROR(train_on(ranks, config, checkpoint_path(good, 4)), "after 2 rollbacks",
                 "max_rollbacks");
    int64_t rollbacks = 0;
    std::set<std::string> seen(before.begin(), before.end());
    std::istringstream lines(posix_file_system().read_file(metrics_path(config)));
    for (std::string line; std::getline(lines, line);) {
      const auto record = nlohmann::json::parse(line);
      if (record.contains("reason")) {
        ++rollbacks;
        EXPECT_EQ(record.at("step"), 4);
        EXPECT_EQ(record.at("reason"), "rollback from step 6");
      } else if (record.contains("data_hash") && record.at("step").get<int64_t>() > 4) {
        EXPECT_TRUE(seen.insert(record.at("data_hash")).second)
            << line;  // never the same data again
      }
    }
    EXPECT_EQ(rollbacks, 2);
  }
}

}  // namespace
}  // namespace mpt::test
