// BF16 storage against the golden models, and the two containers in which a BF16 gradient may be
// accumulated.
#include <gtest/gtest.h>

#include "model/closeness.h"
#include "model/model_bench.h"

namespace mpt::test {
namespace {

// Like in llama_gradient_test.cpp: independent roundings between a weight and the loss, in both
// directions, and here also of the weights themselves (8 per layer and 3), which the golden
// gradients lack.
double tolerance(const LlamaConfig& config) {
  const double roundings =
      double(2 * (13 * config.num_hidden_layers + 4) + 2 * (8 * config.num_hidden_layers + 3));
  return 3 * std::sqrt(roundings) * kBf16Rounding / std::sqrt(3.0);
}

TEST(LlamaBf16, GoldenModels) {
  for (const char* name : {"llama_tiny", "llama_wide"}) {
    const GoldenModel golden = load_golden(name);
    ModelBench bench(golden.config,
                     {.micro_batch = golden.batch, .storage = DType::kBF16, .loss_chunk_rows = 5});
    bench.set_weights(golden.weights);
    const double most = tolerance(golden.config), predicted = double(golden.predicted());
    EXPECT_NEAR(bench.step(golden, golden.batch.rows) / predicted, golden.loss, most * golden.loss);
    EXPECT_LE(deviation(bench.llama().logits(golden.tokens), golden.logits).relative_norm, most);
    const NamedValues gradients = bench.gradients();
    for (const auto& [parameter, want] : golden.gradients)
      EXPECT_LE(deviation(gradients.at(parameter), want).relative_norm, most)
          << name << " " << parameter;
  }
}

// BF16 logits are exact in BF16: nothing wider was returned by accident.
TEST(LlamaBf16, LogitsAreBf16) {
  const GoldenModel golden = load_golden("llama_tiny");
  ModelBench bench(golden.config,
                   {.micro_batch = golden.batch, .storage = DType::kBF16, .keep = Keep::kNothing});
  bench.set_weights(golden.weights);
  for (const float z : bench.llama().logits(golden.tokens)) EXPECT_EQ(z, rounded_to<bf16>(z));
}

struct Gathering {
  DType storage;
  int64_t rows;        // of a micro-batch; the golden batch has 2
  int64_t chunk_rows;  // 0: the head's gradient is written once per micro-batch
};

class GradientFormat : public testing::TestWithParam<Gathering> {
 protected:
  ModelBench bench(DType gradient) const {
    const Gathering& g = GetParam();
    return {golden_.config,
            {.micro_batch = {g.rows, golden_.batch.seq_len},
             .storage = g.storage,
             .gradient = gradient,
             .additions = golden_.batch.rows / g.rows,
             .loss_chunk_rows = g.chunk_rows}};
  }
  GoldenModel golden_ = load_golden("llama_tiny");
};

// However it was accumulated, a BF16 gradient is the FP32 one rounded once.
TEST_P(GradientFormat, Bf16IsFp32RoundedOnce) {
  ModelBench wide = bench(DType::kF32), narrow = bench(DType::kBF16);
  wide.set_weights(golden_.weights);
  narrow.set_weights(golden_.weights);
  EXPECT_EQ(wide.step(golden_, GetParam().rows), narrow.step(golden_, GetParam().rows));
  NamedValues want = wide.gradients();
  for (auto& [name, values] : want)
    for (float& g : values) g = rounded_to<bf16>(g);
  EXPECT_EQ(narrow.gradients(), want);
}

// GEMMs of FP32 weights write only FP32.
TEST_P(GradientFormat, TheContainerFollowsStorageAndAdditions) {
  ModelBench narrow = bench(DType::kBF16), wide = bench(DType::kF32);
  const WeightStore& store = narrow.store();
  for (int64_t i = 0; i < int64_t(store.specs().size()); ++i) {
    const bool in_chunks =
        store.specs()[size_t(i)].kind == ParamKind::kHead && GetParam().chunk_rows > 0;
    const bool gathered =
        GetParam().storage == DType::kF32 || GetParam().rows < golden_.batch.rows || in_chunks;
    EXPECT_EQ(store.gradient(i).dtype, gathered ? DType::kF32 : DType::kBF16)
        << store.specs()[size_t(i)].name;
    EXPECT_EQ(store.rounded_later(i), gathered);
    EXPECT_EQ(wide.store().gradient(i).dtype, DType::kF32);
    EXPECT_FALSE(wide.store().rounded_later(i));
  }
}

std::string bf16_case_name(const testing::TestParamInfo<Gathering>& info) {
  const Gathering& g = info.param;
  return fmt::format("{}_rows{}_chunk{}", name_of(g.storage), g.rows, g.chunk_rows);
}

INSTANTIATE_TEST_SUITE_P(All, GradientFormat,
                         testing::Values(Gathering{DType::kF32, 2, 0}, Gathering{DType::kF32, 2, 5},
                                         Gathering{DType::kF32, 1, 0},
                                         Gathering{DType::kBF16, 2, 0},
                                         Gathering{DType::kBF16, 2, 5},
                                         Gathering{DType::kBF16, 1, 5}),
                         bf16_case_name);

}  // namespace
}  // namespace mpt::test
