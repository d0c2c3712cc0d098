// How many rows of a micro-batch fit, on one rank and on several, and the messages for a run that
// does not fit.
#include "train/resources/memory_fit.h"

#include <gtest/gtest.h>

#include "config/run_config_json.h"
#include "config/run_data.h"
#include "support/captured_log.h"
#include "support/expect_error.h"
#include "support/ranks_run.h"
#include "support/temp_directory.h"
#include "support/tiny_run.h"
#include "train/resume/resume_check.h"
#include "train/step/training_model.h"

namespace mpt::test {
namespace {

class MemoryFit : public testing::Test {
 protected:
  // 24 rows per step, with activations as the largest part.
  static RunConfig config(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"batch.tokens_per_step=1536", "batch.seq_len=64",
                               "batch.micro_batch_rows=0", "device.type=cpu", "device.threads=1"});
    return tiny_config("none", "fit", more);
  }
  int64_t bytes(const RunConfig& config, int64_t rows, int64_t ranks = 1) {
    return planned_memory(with_micro_batch(config, rows), *device_, Communicator::planned(0, ranks))
        .total();
  }
  // Returns the least memory in which `needed` leaves the head-room free.
  static FreeMemory room_for(int64_t needed, Backend backend = Backend::kCpu) {
    FreeMemory memory{.bytes = needed, .backend = backend};
    while (memory.bytes - head_room(memory) < needed)
      memory.bytes += needed - (memory.bytes - head_room(memory));
    return memory;
  }
  static FreeMemory less(FreeMemory memory) {
    memory.bytes -= 2;
    return memory;
  }
  int64_t largest(const RunConfig& config, const FreeMemory& memory, int64_t ranks = 1) {
    return largest_micro_batch(config, *device_, Communicator::planned(0, ranks), memory);
  }

  std::unique_ptr<Device> device_ = make_cpu_device(1, Bf16Dot::kAuto);
};

TEST_F(MemoryFit, TakesTheMostRowsThatLeaveTheHeadRoomFree) {
  const RunConfig run = config();
  for (const Backend backend : {Backend::kCpu, Backend::kCuda})
    for (const int64_t rows : {12, 8, 6, 4, 3, 2, 1}) {
      const FreeMemory memory = room_for(bytes(run, rows), backend);
      EXPECT_EQ(largest(run, memory), rows) << int(backend);
      EXPECT_LT(largest(run, less(memory)), rows) << int(backend);
    }
  EXPECT_EQ(largest(run, {.bytes = bytes(run, 1) - 1}), 0);
  EXPECT_EQ(largest(run, {}), 24);
}

TEST_F(MemoryFit, TheHeadRoomIsATenthAndOnAGpuAtLeastAGibibyte) {
  const auto of = [](int64_t bytes, Backend backend) {
    return head_room({.bytes = bytes, .backend = backend});
  };
  constexpr int64_t kGiB = int64_t{1} << 30;
  EXPECT_EQ(of(80 * kGiB, Backend::kCuda), 8 * kGiB);
  EXPECT_EQ(of(4 * kGiB, Backend::kCuda), kGiB);
  EXPECT_EQ(of(20 * kGiB, Backend::kCpu), 2 * kGiB);
  EXPECT_EQ(of(1000, Backend::kCpu), 100);
}

// The meaning of 0 before there was a choice is unchanged wherever it could run.
TEST_F(MemoryFit, AWholeStepOnACpuNeedsNoHeadRoom) {
  const RunConfig run = config();
  const int64_t whole = bytes(run, 24);
  EXPECT_EQ(largest(run, {.bytes = whole}), 24);
  EXPECT_LT(largest(run, {.bytes = whole - 1}), 24);
  EXPECT_LT(largest(run, {.bytes = whole, .backend = Backend::kCuda}), 24);
}

// Accumulated gradients are FP32, so two halves of a step can take more than the whole.
TEST_F(MemoryFit, AWholeStepMayFitWhereLessDoesNot) {
  const RunConfig run = config({"model.hidden_size=256", "batch.tokens_per_step=32",
                                "batch.seq_len=16", "precision.gradient=bf16"});
  const int64_t whole = bytes(run, 2);
  ASSERT_LT(whole, bytes(run, 1));
  EXPECT_EQ(largest(run, {.bytes = whole}), 2);
}

// 8 rows and 6 both split a rank's 12 rows in two.
TEST_F(MemoryFit, MicroBatchesOfARankAreAsEqualAsCanBe) {
  const RunConfig run = config();
  EXPECT_EQ(largest(run, room_for(bytes(run, 8, 2)), 2), 6);
  EXPECT_EQ(largest(run, {}, 2), 12);
  EXPECT_EQ(largest(run, {}, 5), 6);  // the smallest divisor of 24 that holds a rank's 5 rows
}

// --- choice --------------------------------------------------------------------------------------

TEST_F(MemoryFit, AChoiceIsAConfigThatIsValidAndSaysWhy) {
  const RunConfig run = config();
  const auto choice = [&](const RunConfig& config, const FreeMemory& memory) {
    return choose_rows(config, *device_, Communicator::single(), memory);
  };
  const ChosenRows some = choice(run, room_for(bytes(run, 8)));
  EXPECT_EQ(some.config.batch.micro_batch_rows, 8);
  EXPECT_NE(some.reason.find("the most that leave"), std::string::npos) << some.reason;
  EXPECT_EQ(galore_batch_rows(some.config), galore_batch_rows(run)) << "no matter of memory";
  EXPECT_NO_THROW(validate(some.config));
  EXPECT_EQ(choice(run, {.bytes = int64_t{1} << 40}).reason, "a whole step at once, which fits");
  EXPECT_EQ(choice(run, {}).reason, "a whole step; free memory unknown");
  EXPECT_EQ(choice(run, {.bytes = 1}).config.batch.micro_batch_rows, 1);
  const RunConfig fixed = config({"batch.micro_batch_rows=3"});
  EXPECT_EQ(choice(fixed, {.bytes = 1}).config, fixed);
  EXPECT_EQ(choice(fixed, {.bytes = 1}).reason, "");
}

TEST_F(MemoryFit, TheRecordedNumberStandsForTheChoice) {
  const RunConfig run = config();
  const auto choice = [&](const RunConfig& config, const RecordedRows& recorded) {
    return choose_rows_together(config, *device_, Communicator::single(), {}, recorded).config;
  };
  const RunConfig kept = choice(run, {.step = 24, .micro_batch = 2, .galore_batch = 7});
  EXPECT_EQ(kept.batch.micro_batch_rows, 2);
  EXPECT_EQ(kept.eval.galore_batch_rows, 7);
  EXPECT_EQ(choice(run, {.step = 48, .micro_batch = 2}).batch.micro_batch_rows, 24)
      << "recorded for another step";
  EXPECT_EQ(choice(config({"batch.micro_batch_rows=3"}), {.step = 24, .micro_batch = 2})
                .batch.micro_batch_rows,
            3);
}

// Each has its own memory; all use the same number of rows.
TEST_F(MemoryFit, RanksAgreeOnWhatFitsAll) {
  const RunConfig run = config();
  std::array<int64_t, 3> rows{};
  on_ranks(run, 3, [&](RankOfRun& rank) {
    rank.ranks.or_abort([&] {
      const std::array<FreeMemory, 3> memory{FreeMemory{}, room_for(bytes(run, 3, 3)),
                                             room_for(bytes(run, 6, 3))};
      const auto number = size_t(rank.ranks.rank());
      rows[number] = choose_rows_together(run, *rank.device, rank.ranks, memory[number], {})
                         .config.batch.micro_batch_rows;
    });
  });
  EXPECT_EQ(rows, (std::array<int64_t, 3>{3, 3, 3}));
}

// It is up to check_same_start() to report that configs differ.
TEST_F(MemoryFit, RanksWithDifferentConfigsDoNotWaitForEver) {
  for (const char* fixed : {"1", "24"})
    EXPECT_NO_THROW(on_ranks(config(), 3, [&](RankOfRun& rank) {
      const RunConfig run = rank.ranks.is_root()
                                ? config({std::string("batch.micro_batch_rows=") + fixed})
                                : config();
      rank.ranks.or_abort([&] {
        const ChosenRows chosen =
            choose_rows_together(run, *rank.device, rank.ranks, room_for(bytes(run, 4, 3)), {});
        if (rank.ranks.is_root()) {
          EXPECT_EQ(std::to_string(chosen.config.batch.micro_batch_rows), fixed);
        }
      });
    }));
}

// --- on GPUs -------------------------------------------------------------------------------------

TEST_F(MemoryFit, CountsRowsForGpusWithoutOne) {
  const RunConfig run = load_run_config(std::string(MPT_SOURCE_DIR) + "/configs/1b_fp8.json",
                                        {"device.type=cpu", "device.cuda_attention=cudnn"});
  const RowsOnGpus rows = rows_on_gpus(run, *device_, Communicator::single());
  ASSERT_EQ(rows.gpus.size(), 3u);
  EXPECT_EQ(rows.counted_for, has_cuda() ? Backend::kCuda : Backend::kCpu);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(rows.gpus[i].gigabytes, (std::array{24, 80, 141}[i]));
    ASSERT_GT(rows.gpus[i].rows, 0);
    EXPECT_EQ(128 % rows.gpus[i].rows, 0);
  }
  EXPECT_LT(rows.gpus[0].rows, rows.gpus[1].rows);
  EXPECT_EQ(rows.gpus[2].rows, 128);
}

// --- runs that do not fit ------------------------------------------------------------------------

class DoesNotFit : public MemoryFit {
 protected:
  std::string told(const ChosenRows& chosen, const FreeMemory& memory) {
    try {
      require_memory(chosen, *device_, Communicator::single(), memory);
    } catch (const Error& problem) {
      return problem.what();
    }
    return "";
  }
  ChosenRows chosen(const RunConfig& config, const FreeMemory& memory) {
    return choose_rows(config, *device_, Communicator::single(), memory);
  }
  static void expect(const std::string& text, const std::vector<std::string>& parts) {
    for (const std::string& part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << text << "\n  lacks " << part;
  }
};

TEST_F(DoesNotFit, IsToldWhatWouldByKey) {
  const RunConfig run =
      config({"model.num_hidden_layers=16", "batch.tokens_per_step=12288", "batch.seq_len=512"});
  RunConfig recomputed = run;
  recomputed.train.activation_recompute = ActivationRecompute::kBlock;
  RunConfig shorter = recomputed;
  shorter.batch.seq_len = 128;
  const FreeMemory some = room_for(bytes(run, 4)), block = room_for(bytes(recomputed, 1)),
                   brief = room_for(bytes(shorter, 1));
  ASSERT_LT(block.bytes, bytes(run, 1));
  ASSERT_LT(brief.bytes, bytes(recomputed, 1));
  EXPECT_EQ(told(chosen(run, some), some), "");
  expect(told({with_micro_batch(run, 24)}, some), {"batch.micro_batch_rows=4 would fit"});
  expect(told(chosen(run, block), block),
         {"in micro-batches of 1 row (the fewest)",
          "train.activation_recompute=block with batch.micro_batch_rows=1 would fit"});
  expect(told(chosen(run, brief), brief),
         {"batch.seq_len=128 with train.activation_recompute=block"});
  expect(told(chosen(run, {.bytes = 1}), {.bytes = 1}), {"no micro-batch fits"});
}

// A recorded number is not replaced by another one without a request.
TEST_F(DoesNotFit, ARecordedNumberIsNamed) {
  const RunConfig run = config();
  const FreeMemory memory = room_for(bytes(run, 3));
  const ChosenRows kept =
      choose_rows_together(run, *device_, Communicator::single(), memory, RecordedRows{24, 12, 24});
  expect(told(kept, memory), {"in micro-batches of 12 rows (as the checkpoint was saved)",
                              "batch.micro_batch_rows=3 would fit"});
}

// --- resuming ------------------------------------------------------------------------------------

// A checkpoint saved with 0 holds a whole step.
TEST(RecordedRowsOf, ANumberIsNoChangeFromTheZeroItStandsFor) {
  const TempDirectory directory;
  write_tiny_data(directory.path());
  const RunConfig zero = tiny_config(directory.path(), "zero", {"batch.micro_batch_rows=0"});
  const TrainState saved{
      .seed = zero.seed, .config = resolved_json(zero), .extra = {{"data_tokens", 890}}};
  const RecordedRows rows = rows_of(saved);
  EXPECT_EQ(rows.step, 6);
  EXPECT_EQ(rows.micro_batch, 6);
  EXPECT_EQ(rows.galore_batch, 6);
  const CapturedLog log(spdlog::level::info);
  check_resumable(saved, "saved", with_micro_batch(zero, 6));
  EXPECT_EQ(log.text(), "");
  check_resumable(saved, "saved", with_micro_batch(zero, 3));
  EXPECT_TRUE(log.has("batch.micro_batch_rows was 6, is now 3")) << log.text();
}

// A checkpoint only knows the rows of val_loss_family for the phase that saved it; another phase
// has its own, as without an interruption.
TEST(RecordedRowsOf, FamilyRowsAreThoseOfThePhase) {
  const TempDirectory directory;
  write_tiny_data(directory.path());
  const RunConfig run = tiny_config(
      directory.path(), "phases",
      {R"(phases=[{"until":0.5,"batch":{"seq_len":16,"tokens_per_step":96,"micro_batch_rows":0}},)"
       R"({"until":1,"batch":{"seq_len":16,"tokens_per_step":192,"micro_batch_rows":0}}])"});
  TrainState saved{.step = 6, .seed = run.seed, .config = resolved_json(run), .extra = {}};
  saved.config["eval"]["galore_batch_rows"] = 6;
  EXPECT_EQ(rows_of(saved, 0).galore_batch, 6);
  const RecordedRows second = rows_of(saved, 1);
  EXPECT_EQ(second.galore_batch, 0);
  const auto device = make_cpu_device(1);
  const ChosenRows chosen =
      choose_rows_together(run_phases(run)[1].config, *device, Communicator::single(), {}, second);
  EXPECT_EQ(chosen.config.eval.galore_batch_rows, 12);
}

TEST(RecordedRowsOf, AConfigThatIsNotValidHasNone) {
  TrainState saved;
  for (const nlohmann::json& bad : {nlohmann::json(3), nlohmann::json{{"name", 3}}}) {
    saved.config = bad;
    EXPECT_EQ(rows_of(saved).step, 0) << bad.dump();
  }
}

}  // namespace
}  // namespace mpt::test
