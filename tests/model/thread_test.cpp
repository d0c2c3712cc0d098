// Losses and gradients are bit-identical for any number of threads.
#include <gtest/gtest.h>

#include "model/model_bench.h"
#include "model/random_model.h"

namespace mpt::test {
namespace {

struct Result {
  double loss;
  NamedValues gradients;
  std::vector<float> logits;
  bool operator==(const Result&) const = default;
};

Result result_with(const GoldenModel& model, BenchOptions options, int threads) {
  options.threads = threads;
  options.micro_batch = model.batch;
  ModelBench bench(model.config, options);
  bench.set_weights(model.weights);
  const double loss = bench.step(model, model.batch.rows);
  return {loss, bench.gradients(), bench.llama().logits(model.tokens)};
}

// Large enough that rows, heads, chunks of the norm's gradient and blocks of the GEMMs are shared
// out; widths that are no multiples of a tile. In an odd vocabulary the last column of the logits
// is a separate block.
class Threads : public testing::TestWithParam<int64_t> {};

TEST_P(Threads, ChangeNothing) {
  const LlamaConfig config{.hidden_size = 36,
                           .intermediate_size = 50,
                           .num_hidden_layers = 1,
                           .num_attention_heads = 3,
                           .vocab_size = GetParam()};
  const GoldenModel model = random_model(config, {3, 61}, {.ignored = 0.1});
  for (const DType storage : {DType::kF32, DType::kBF16})
    for (const int64_t chunk : {0, 50}) {
      const BenchOptions options{
          .micro_batch = model.batch, .storage = storage, .loss_chunk_rows = chunk};
      const Result one = result_with(model, options, 1);
      for (const int threads : {2, 3})
        EXPECT_TRUE(result_with(model, options, threads) == one)
            << threads << " threads, " << name_of(storage);
    }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, Threads, testing::Values(61, 98, 301));

}  // namespace
}  // namespace mpt::test
