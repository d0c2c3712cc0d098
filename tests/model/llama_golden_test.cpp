// Logits, loss and every gradient against a float64 LLaMA in PyTorch, and changes that must not
// affect a bit of them.
#include <gtest/gtest.h>

#include "model/closeness.h"
#include "model/model_bench.h"

namespace mpt::test {
namespace {

// FP32 PyTorch is within 7.2e-6 of these logits (tests/golden/README.md): 1e-5 of a tensor's
// largest element, and of its norm, leaves no room for a wrong term.
constexpr double kTolerance = 1e-5;

struct GoldenCase {
  const char* golden;
  int64_t rows_at_a_time;
  int64_t loss_chunk_rows;
  Recompute recompute;
};

std::string golden_case_name(const testing::TestParamInfo<GoldenCase>& info) {
  const GoldenCase& c = info.param;
  return fmt::format("{}_rows{}_chunk{}_{}", c.golden, c.rows_at_a_time, c.loss_chunk_rows,
                     c.recompute == Recompute::kNone ? "keep" : "recompute");
}

ModelBench bench_of(const GoldenModel& golden, const GoldenCase& c) {
  return {golden.config,
          {.micro_batch = {c.rows_at_a_time, golden.batch.seq_len},
           .additions = (golden.batch.rows + c.rows_at_a_time - 1) / c.rows_at_a_time,
           .loss_chunk_rows = c.loss_chunk_rows,
           .recompute = c.recompute}};
}

void expect_gradients_near(const NamedValues& got, const NamedValues& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, values] : want) {
    const Deviation d = deviation(got.at(name), values);
    EXPECT_LE(d.relative_norm, tolerance) << name;
    EXPECT_LE(d.relative_max, tolerance) << name;
  }
}

class LlamaGolden : public testing::TestWithParam<GoldenCase> {};

TEST_P(LlamaGolden, LossAndGradients) {
  const GoldenModel golden = load_golden(GetParam().golden);
  ModelBench bench = bench_of(golden, GetParam());
  bench.set_weights(golden.weights);
  const double loss = bench.step(golden, GetParam().rows_at_a_time) / double(golden.predicted());
  EXPECT_NEAR(loss / golden.loss, 1, 1e-6);
  expect_gradients_near(bench.gradients(), golden.gradients, kTolerance);
}

INSTANTIATE_TEST_SUITE_P(All, LlamaGolden,
                         testing::Values(GoldenCase{"llama_tiny", 2, 0, Recompute::kNone},
                                         GoldenCase{"llama_tiny", 2, 1, Recompute::kNone},
                                         GoldenCase{"llama_tiny", 2, 5, Recompute::kBlock},
                                         GoldenCase{"llama_tiny", 1, 0, Recompute::kBlock},
                                         GoldenCase{"llama_tiny", 1, 5, Recompute::kNone},
                                         GoldenCase{"llama_wide", 1, 0, Recompute::kNone},
                                         GoldenCase{"llama_wide", 1, 1, Recompute::kBlock},
                                         GoldenCase{"llama_wide", 1, 5, Recompute::kNone}),
                         golden_case_name);

TEST(LlamaGoldenForward, Logits) {
  for (const char* name : {"llama_tiny", "llama_wide"}) {
    const GoldenModel golden = load_golden(name);
    for (const int64_t chunk : {0, 1, 5}) {
      ModelBench bench(
          golden.config,
          {.micro_batch = golden.batch, .loss_chunk_rows = chunk, .keep = Keep::kNothing});
      bench.set_weights(golden.weights);
      const Deviation d = deviation(bench.llama().logits(golden.tokens), golden.logits);
      EXPECT_LE(d.relative_norm, kTolerance) << name;
      EXPECT_LE(d.relative_max, kTolerance) << name;
    }
  }
}

TEST(LlamaGoldenForward, EvaluateGivesTheLossOfTraining) {
  const GoldenModel golden = load_golden("llama_tiny");
  ModelBench training(golden.config, {.micro_batch = golden.batch});
  ModelBench evaluation(golden.config, {.micro_batch = golden.batch, .keep = Keep::kNothing});
  training.set_weights(golden.weights);
  evaluation.set_weights(golden.weights);
  const double loss = training.step(golden, 2);
  EXPECT_EQ(evaluation.llama().evaluate(golden.rows(0, 2)), loss);
  EXPECT_EQ(training.llama().evaluate(golden.rows(0, 2)), loss);
}

NamedValues gradients_with(const GoldenModel& golden, const BenchOptions& options, int64_t rows) {
  ModelBench bench(golden.config, options);
  bench.set_weights(golden.weights);
  bench.step(golden, rows);
  return bench.gradients();
}

TEST(LlamaGoldenBits, RecomputationChangesNothing) {
  for (const char* name : {"llama_tiny", "llama_wide"}) {
    const GoldenModel golden = load_golden(name);
    for (const DType storage : {DType::kF32, DType::kBF16}) {
      const auto with = [&](Recompute recompute) {
        return gradients_with(
            golden, {.micro_batch = golden.batch, .storage = storage, .recompute = recompute},
            golden.batch.rows);
      };
      EXPECT_EQ(with(Recompute::kNone), with(Recompute::kBlock)) << name << " " << name_of(storage);
    }
  }
}

TEST(LlamaGoldenBits, ASecondStepOverwritesTheFirst) {
  const GoldenModel golden = load_golden("llama_tiny");
  ModelBench bench(
      golden.config,
      {.micro_batch = {1, golden.batch.seq_len}, .additions = 2, .loss_chunk_rows = 5});
  bench.set_weights(golden.weights);
  bench.step(golden, 1);
  const NamedValues first = bench.gradients();
  bench.step(golden, 1);
  EXPECT_EQ(bench.gradients(), first);
}

// Twice the scale is exactly twice the gradient: nothing else is scaled, no term is added.
TEST(LlamaGoldenBits, GradientsAreProportionalToTheScale) {
  const GoldenModel golden = load_golden("llama_tiny");
  ModelBench bench(golden.config, {.micro_batch = golden.batch});
  bench.set_weights(golden.weights);
  const auto with = [&](float scale) {
    bench.llama().forward_backward(golden.rows(0, 2),
                                   {.gradient_scale = scale, .accumulate = Accumulate::kNo});
    return bench.gradients();
  };
  NamedValues one = with(0.25f);
  for (auto& [name, values] : one)
    for (float& x : values) x *= 4;
  EXPECT_EQ(with(1.0f), one);
}

}  // namespace
}  // namespace mpt::test
