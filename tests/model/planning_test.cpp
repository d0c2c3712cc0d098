// The plan of a model matches what it allocates: memory by purpose, growth with the batch, and
// refused sizes.
#include <gtest/gtest.h>

#include "model/closeness.h"
#include "model/model_bench.h"
#include "model/random_model.h"

namespace mpt::test {
namespace {

const LlamaConfig kPlanned{.hidden_size = 24,
                           .intermediate_size = 40,
                           .num_hidden_layers = 3,
                           .num_attention_heads = 2,
                           .vocab_size = 70};
const LlamaConfig k1B{.hidden_size = 2048,
                      .intermediate_size = 5461,
                      .num_hidden_layers = 24,
                      .num_attention_heads = 32,
                      .vocab_size = 32000};

constexpr MemoryPurpose kAllPurposes[] = {kWeightMemory,     kComputeWeightMemory, kGradientMemory,
                                          kActivationMemory, kLogitMemory,         kScratchMemory,
                                          kDataMemory};

struct PlanOptions {
  BatchShape micro_batch;
  DType storage = DType::kBF16;
  Recompute recompute = Recompute::kNone;
  Keep keep = Keep::kForBackward;
  int64_t loss_chunk_rows = 64;
};

// The same constructors against any allocator.
void construct(const LlamaConfig& config, const PlanOptions& o, Device& device,
               Allocator& allocator) {
  const WeightStore store(
      llama_parameters(config),
      {.storage = o.storage,
       .gradient = o.storage,
       .gradients = o.keep == Keep::kForBackward ? Gradients::kAllocate : Gradients::kNone},
      device, allocator);
  const Llama llama(config,
                    {.micro_batch = o.micro_batch,
                     .storage = o.storage,
                     .loss_chunk_rows = o.loss_chunk_rows,
                     .recompute = o.recompute,
                     .keep = o.keep},
                    store, device, allocator);
}

MemoryUse planned(const LlamaConfig& config, const PlanOptions& o, int threads = 2) {
  const auto device = make_cpu_device(threads);
  PlanningAllocator allocator;
  construct(config, o, *device, allocator);
  return allocator.use();
}

// --- planned memory is allocated -----------------------------------------------------------------

TEST(Plan, IsWhatIsTaken) {
  for (const DType storage : {DType::kF32, DType::kBF16})
    for (const Recompute recompute : {Recompute::kNone, Recompute::kBlock})
      for (const Keep keep : {Keep::kForBackward, Keep::kNothing})
        for (const BatchShape& shape : {BatchShape{1, 1}, BatchShape{3, 50}, BatchShape{2, 96}}) {
          const PlanOptions options{
              .micro_batch = shape, .storage = storage, .recompute = recompute, .keep = keep};
          const auto device = make_cpu_device(3);
          PlanningAllocator plan;
          construct(kPlanned, options, *device, plan);
          const auto allocator = device->make_allocator();
          construct(kPlanned, options, *device, *allocator);
          for (const MemoryPurpose purpose : kAllPurposes)
            EXPECT_EQ(plan.use().of(purpose), allocator->use().of(purpose)) << purpose.name;
          EXPECT_EQ(plan.use().total(), allocator->use().total());
        }
}

// A run allocates no memory that was not planned.
TEST(Plan, RunningTakesNothingMore) {
  const GoldenModel model = random_model(kPlanned, {2, 9}, {});
  ModelBench bench(kPlanned,
                   {.micro_batch = model.batch, .storage = DType::kBF16, .loss_chunk_rows = 5});
  const int64_t before = bench.allocator().use().total();
  bench.set_weights(model.weights);
  bench.step(model, 2);
  bench.llama().logits(model.tokens);
  EXPECT_EQ(bench.allocator().use().total(), before);
}

// A device outlives the memory of its models: no data of the first may be used by the second,
// larger or smaller.
TEST(Plan, OneModelAfterAnotherOnADevice) {
  const auto device = make_cpu_device(2);
  for (const DType storage : {DType::kBF16, DType::kF32})
    for (const int64_t rows : {2, 1, 3}) {
      const GoldenModel model = random_model(kPlanned, {rows, 50}, {});
      PlanningAllocator plan;
      construct(kPlanned, {.micro_batch = model.batch, .storage = storage}, *device, plan);
      const auto allocator = device->make_allocator();
      const WeightStore store(llama_parameters(kPlanned), {.storage = storage, .gradient = storage},
                              *device, *allocator);
      Llama llama(kPlanned, {.micro_batch = model.batch, .storage = storage, .loss_chunk_rows = 64},
                  store, *device, *allocator);
      EXPECT_EQ(plan.use().total(), allocator->use().total());
      for (const NamedTensor& named : store.named_tensors())
        set_values(*device, named.tensor, model.weights.at(named.name));
      const double loss = llama.forward_backward(
          model.rows(0, rows), {.gradient_scale = 1, .accumulate = Accumulate::kNo});
      ModelBench alone(
          kPlanned,
          {.micro_batch = model.batch, .threads = 2, .storage = storage, .loss_chunk_rows = 64});
      alone.set_weights(model.weights);
      EXPECT_EQ(loss, alone.llama().evaluate(model.rows(0, rows)));
    }
}

// BF16 weights and gradients of the 1B model: 2 bytes for every stored element, each tensor
// aligned; nothing is allocated to find out.
TEST(Plan, OneBillionParameters) {
  const MemoryUse use = planned(k1B, {.micro_batch = {8, 1024}});
  const int64_t padding = int64_t{24} * 3 * 11 * 2048;
  EXPECT_EQ(use.of(kWeightMemory), 2 * (1'339'082'752 + padding));
  EXPECT_EQ(use.of(kGradientMemory), use.of(kWeightMemory));
  const int64_t n = 8 * 1024, c = 2048, f = 5472;
  const int64_t layer = 2 * n * (c + c + 3 * c + c + c + c + 2 * f + f) + 4 * n * (2 + 32);
  EXPECT_EQ(use.of(kActivationMemory), 24 * layer + 2 * n * 3 * c + 4 * n);
  EXPECT_EQ(use.of(kLogitMemory), 2 * 64 * 32000 + 4 * n + kAlignment);  // losses, and their sum
}

// --- growth --------------------------------------------------------------------------------------

// Every purpose grows from 2T to 4T by twice its growth from T to 2T: nothing is quadratic in T.
TEST(Plan, IsLinearInTheSequenceLength) {
  const auto at = [](int64_t tokens, MemoryPurpose purpose) {
    return planned(k1B, {.micro_batch = {2, tokens}}).of(purpose);
  };
  for (const MemoryPurpose purpose : kAllPurposes) {
    const int64_t one = at(512, purpose), two = at(1024, purpose), four = at(2048, purpose);
    EXPECT_EQ(four - two, 2 * (two - one)) << purpose.name;
  }
  EXPECT_EQ(at(1024, kActivationMemory), 2 * at(512, kActivationMemory));
}

// With the batch, only four bytes per token are added: its loss.
TEST(Plan, LogitsDoNotGrowWithTheBatch) {
  const auto logits = [](int64_t rows) {
    return planned(k1B, {.micro_batch = {rows, 1024}}).of(kLogitMemory);
  };
  EXPECT_EQ(logits(16) - logits(1), 15 * 1024 * 4);
}

TEST(Plan, DefaultLossChunk) {
  const auto rows = [](int64_t vocab, BatchShape shape) {
    LlamaConfig config = k1B;
    config.vocab_size = vocab;
    return default_loss_chunk_rows(config, shape);
  };
  EXPECT_EQ(rows(32000, {8, 1024}), 512);  // 64 MiB would hold 524
  EXPECT_EQ(rows(32000, {1, 100}), 100);
  EXPECT_EQ(rows(1 << 24, {8, 1024}), 16);
  EXPECT_EQ(rows(1 << 24, {1, 4}), 4);
  EXPECT_EQ(rows(2, {1, 1}), 1);
}

TEST(Plan, RecomputationKeepsOneTensorALayer) {
  LlamaConfig deeper = k1B;
  deeper.num_hidden_layers = 25;
  const PlanOptions options{.micro_batch = {2, 64}, .recompute = Recompute::kBlock};
  const auto activations = [&](const LlamaConfig& c) {
    return planned(c, options).of(kActivationMemory);
  };
  EXPECT_EQ(activations(deeper) - activations(k1B), 2 * 64 * 2048 * 2);
}

TEST(Plan, EvaluationKeepsNothingForBackward) {
  LlamaConfig deeper = k1B;
  deeper.num_hidden_layers = 25;
  const PlanOptions training{.micro_batch = {2, 64}};
  PlanOptions evaluation = training;
  evaluation.keep = Keep::kNothing;
  const MemoryUse use = planned(k1B, evaluation), full = planned(k1B, training);
  EXPECT_EQ(use.of(kGradientMemory), 0);
  EXPECT_EQ(use.of(kActivationMemory), planned(deeper, evaluation).of(kActivationMemory));
  EXPECT_EQ(use.of(kWeightMemory), full.of(kWeightMemory));
  const int64_t gradients_inside = 2 * 64 * 2 * (2 * 2048 + 3 * 2048);
  EXPECT_LE(use.of(kScratchMemory) + gradients_inside, full.of(kScratchMemory));
}

// --- micro-batches of other sizes ----------------------------------------------------------------

struct OneStep {
  double loss;
  std::vector<float> token_losses;
  NamedValues gradients;
  bool operator==(const OneStep&) const = default;
};

OneStep first_row_of(const GoldenModel& model, int64_t planned_rows, DType storage,
                     Recompute recompute) {
  ModelBench bench(model.config, {.micro_batch = {planned_rows, model.batch.seq_len},
                                  .storage = storage,
                                  .loss_chunk_rows = 4,
                                  .recompute = recompute});
  bench.set_weights(model.weights);
  // Remains of a fuller micro-batch must not show.
  if (planned_rows > 1)
    bench.llama().forward_backward(model.rows(0, planned_rows),
                                   {.gradient_scale = 1, .accumulate = Accumulate::kNo});
  const double loss = bench.llama().forward_backward(
      model.rows(0, 1), {.gradient_scale = 0.25f, .accumulate = Accumulate::kNo});
  const auto losses = bench.llama().token_losses();
  return {loss, {losses.begin(), losses.end()}, bench.gradients()};
}

TEST(MicroBatch, ASmallerOneIsComputedAsIfPlannedForIt) {
  const GoldenModel model = random_model(kPlanned, {3, 7}, {.ignored = 0.2});
  for (const DType storage : {DType::kF32, DType::kBF16})
    for (const Recompute recompute : {Recompute::kNone, Recompute::kBlock})
      EXPECT_EQ(first_row_of(model, 3, storage, recompute),
                first_row_of(model, 1, storage, recompute));
}

// Sums over the rows do not depend on how many are processed at a time, up to the order of FP32
// sums in the GEMMs.
TEST(MicroBatch, EvaluationIsTheSumOverRows) {
  const GoldenModel model = random_model(kPlanned, {5, 9}, {.ignored = 0.2});
  std::vector<double> sums;
  for (const int64_t rows : {1, 2, 3, 5}) {
    ModelBench bench(kPlanned,
                     {.micro_batch = {rows, 9}, .loss_chunk_rows = 4, .keep = Keep::kNothing});
    bench.set_weights(model.weights);
    double sum = 0;
    for (int64_t first = 0; first < 5; first += rows)
      sum += bench.llama().evaluate(model.rows(first, std::min<int64_t>(rows, 5 - first)));
    sums.push_back(sum);
  }
  for (const double sum : sums) EXPECT_NEAR(sum, sums[0], 1e-6 * sums[0]);
}

TEST(MicroBatch, TokenLossesAddUp) {
  const GoldenModel model = random_model(kPlanned, {3, 7}, {.ignored = 0.3});
  ModelBench bench(kPlanned, {.micro_batch = model.batch, .keep = Keep::kNothing});
  bench.set_weights(model.weights);
  const double sum = bench.llama().evaluate(model.rows(0, 3));
  const auto losses = bench.llama().token_losses();
  ASSERT_EQ(losses.size(), model.targets.size());
  double again = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_EQ(losses[i] == 0, model.targets[i] < 0);
    again += losses[i];
  }
  EXPECT_EQ(again, sum);
}

// --- refusals ------------------------------------------------------------------------------------

TEST(MicroBatch, ImpossibleBatchesAreRefused) {
  const GoldenModel model = random_model(kPlanned, {3, 7}, {});
  ModelBench bench(kPlanned, {.micro_batch = {2, 7}, .keep = Keep::kNothing});
  bench.set_weights(model.weights);
  Llama& llama = bench.llama();
  const auto tokens = std::span(model.tokens), targets = std::span(model.targets);
  EXPECT_THROW(llama.evaluate({{}, {}}), LogicError);
  EXPECT_THROW(llama.evaluate({tokens.first(6), targets.first(6)}), LogicError);
  EXPECT_THROW(llama.evaluate({tokens.first(8), targets.first(8)}), LogicError);
  EXPECT_THROW(llama.evaluate({tokens.first(7), targets.first(6)}), LogicError);
  EXPECT_THROW(llama.evaluate({tokens.first(21), targets.first(21)}), LogicError);
  EXPECT_THROW(llama.logits(tokens.first(6)), LogicError);
  EXPECT_THROW(llama.forward_backward(model.rows(0, 1),
                                      {.gradient_scale = 1, .accumulate = Accumulate::kNo}),
               LogicError);
  EXPECT_GT(llama.evaluate(model.rows(0, 2)), 0);
}

TEST(MicroBatch, TokensOutsideTheVocabularyAreRefused) {
  GoldenModel model = random_model(kPlanned, {1, 7}, {});
  ModelBench bench(kPlanned, {.micro_batch = model.batch});
  bench.set_weights(model.weights);
  const auto step = [&] {
    return bench.llama().forward_backward(model.rows(0, 1),
                                          {.gradient_scale = 1, .accumulate = Accumulate::kNo});
  };
  for (std::vector<int32_t>* which : {&model.tokens, &model.targets}) {
    const std::vector<int32_t> good = *which;
    for (const int32_t bad : {70, -2, 1 << 30, -(1 << 30)}) {
      which->at(6) = bad;
      EXPECT_THROW(step(), LogicError) << bad;
    }
    *which = good;
  }
  model.tokens[6] = -1;
  EXPECT_THROW(step(), LogicError);
  model.tokens[6] = 69, model.targets[6] = 69;
  EXPECT_GT(step(), 0);
}

TEST(Plan, ImpossibleOptionsAreRefused) {
  const auto device = make_cpu_device(1);
  PlanningAllocator allocator;
  const WeightStore bare(
      llama_parameters(kPlanned),
      {.storage = DType::kF32, .gradient = DType::kF32, .gradients = Gradients::kNone}, *device,
      allocator);
  const auto refused = [&](const LlamaOptions& options) {
    EXPECT_THROW(Llama(kPlanned, options, bare, *device, allocator), LogicError);
  };
  const LlamaOptions good{
      .micro_batch = {2, 7}, .storage = DType::kF32, .loss_chunk_rows = 4, .keep = Keep::kNothing};
  const Llama possible(kPlanned, good, bare, *device, allocator);
  LlamaOptions bad = good;
  bad.keep = Keep::kForBackward;  // the weight store has no gradients
  refused(bad);
  bad = good, bad.loss_chunk_rows = 0;
  refused(bad);
  bad = good, bad.micro_batch.rows = 0;
  refused(bad);
  bad = good, bad.storage = DType::kBF16;  // the weights are fp32
  refused(bad);
}

}  // namespace
}  // namespace mpt::test
