// Every gradient of small whole models against the complex step through an independent LLaMA: odd
// widths, one token, one head and several, padding, ignored targets, storage in fp32 and bf16.
#include <gtest/gtest.h>

#include "model/closeness.h"
#include "model/model_bench.h"
#include "model/random_model.h"
#include "model/reference_llama.h"

namespace mpt::test {
namespace {

// Tests the oracle itself against the files made by PyTorch.
TEST(ReferenceLlamaTest, AgreesWithTheGoldenModels) {
  for (const char* name : {"llama_tiny", "llama_wide"}) {
    const GoldenModel golden = load_golden(name);
    const Weights<double> weights = widened<double>(golden.weights);
    const double loss = ReferenceLlama<double>(golden.config, weights)
                            .loss(golden.rows(0, golden.batch.rows), golden.batch.seq_len);
    EXPECT_NEAR(loss / double(golden.predicted()), golden.loss, 1e-13 * golden.loss) << name;
  }
  const GoldenModel golden = load_golden("llama_tiny");
  for (const char* name : {"model.layers.0.input_layernorm.weight", "model.norm.weight"}) {
    std::vector<double> gradient = reference_gradient(golden, name);
    for (double& g : gradient) g /= double(golden.predicted());
    EXPECT_LE(deviation(gradient, golden.gradients.at(name)).relative_max, 2 * kFp32Rounding)
        << name;
  }
}

struct GradientCase {
  const char* name;
  LlamaConfig config;
  BatchShape batch;
  double ignored;        // fraction of targets
  double documents = 0;  // fraction of tokens that begin one
};

LlamaConfig shape(int64_t hidden, int64_t inter, int64_t heads) {
  return {.hidden_size = hidden,
          .intermediate_size = inter,
          .num_hidden_layers = 1,
          .num_attention_heads = heads,
          .vocab_size = 11};
}

LlamaConfig grouped(LlamaConfig config, int64_t key_value_heads) {
  config.num_key_value_heads = key_value_heads;
  return config;
}

RopeScaling scaled_rope(RopeType type) {
  return {.rope_type = type, .factor = 4, .original_max_position_embeddings = 20};
}

// Returns each variation of LLaMAs separately, and all together.
std::vector<GradientCase> families(int64_t hidden) {
  LlamaConfig tied = shape(hidden, 12, 2), wide_heads = tied, narrow_heads = tied, linear = tied,
              llama3 = tied, normed = tied;
  tied.tie_word_embeddings = true;
  wide_heads.head_size = hidden;
  narrow_heads.head_size = 2;
  linear.rope_scaling = scaled_rope(RopeType::kLinear);
  llama3.head_size = 16;
  llama3.rope_scaling = scaled_rope(RopeType::kLlama3);
  normed.qk_norm = true;
  LlamaConfig all = grouped(shape(hidden, 12, 4), 2);
  all.num_hidden_layers = 2;
  all.head_size = 6;
  all.tie_word_embeddings = all.qk_norm = true;
  all.rope_scaling = llama3.rope_scaling;
  return {{"grouped_queries", grouped(shape(hidden, 12, 4), 2), {2, 5}, 0},
          {"one_key_head", grouped(shape(12, 7, 3), 1), {3, 4}, 0.3},
          {"tied", tied, {2, 5}, 0.2},
          {"wide_heads", wide_heads, {2, 5}, 0},
          {"narrow_heads", narrow_heads, {2, 5}, 0},
          {"linear_rope", linear, {2, 5}, 0},
          {"llama3_rope", llama3, {2, 9}, 0},
          {"normed_heads", normed, {2, 5}, 0},
          {"all_of_it", all, {2, 6}, 0.2},
          {"documents", shape(hidden, 12, 2), {2, 9}, 0, 0.3},
          {"documents_of_one_token", shape(hidden, 12, 2), {2, 5}, 0, 1},
          {"all_of_it_in_documents", all, {2, 12}, 0.2, 0.3}};
}

std::vector<GradientCase> gradient_cases() {
  LlamaConfig two_layers = shape(8, 5, 2), unpadded = shape(8, 5, 2);
  two_layers.num_hidden_layers = 2;
  unpadded.pad_multiple = 1;
  LlamaConfig other_constants = shape(8, 12, 2);
  other_constants.rms_norm_eps = 0.1;
  other_constants.rope_theta = 100;
  return {
      {"one_layer", shape(8, 12, 2), {2, 5}, 0},      {"one_token", shape(8, 12, 2), {1, 1}, 0},
      {"smallest", shape(2, 1, 1), {1, 3}, 0},        {"odd_heads", shape(18, 7, 3), {3, 4}, 0.3},
      {"two_layers", two_layers, {2, 6}, 0.2},        {"unpadded", unpadded, {2, 6}, 0.2},
      {"other_constants", other_constants, {2, 5}, 0}};
}

std::string gradient_case_name(const testing::TestParamInfo<GradientCase>& info) {
  return info.param.name;
}

class LlamaGradient : public testing::TestWithParam<GradientCase> {
 protected:
  // One rounding in the storage type for each of the tensors between a weight and the loss, forward
  // and backward: 13 per layer in each direction and 4 at the end. Independent roundings add like
  // random walks, and a change at one place may grow further on; the factor 3 covers that and the
  // deviation of a norm from its mean.
  [[nodiscard]] double tolerance(DType storage) const {
    const double roundings = double(2 * (13 * GetParam().config.num_hidden_layers + 4));
    return 3 * std::sqrt(roundings) * rounding_of_type(storage) / std::sqrt(3.0);
  }
  static double rounding_of_type(DType storage) {
    return storage == DType::kBF16 ? kBf16Rounding : 4 * kFp32Rounding;
  }

  void expect_gradients(DType storage) {
    const GradientCase& c = GetParam();
    GoldenModel model = random_model(
        c.config, c.batch,
        {.storage = storage, .ignored = c.ignored, .seed = 3, .documents = c.documents});
    ModelBench bench(c.config, {.micro_batch = c.batch,
                                .storage = storage,
                                .attention = c.documents > 0 ? AttentionScope::kDocument
                                                             : AttentionScope::kRow});
    bench.set_weights(model.weights);
    const double loss = bench.llama().forward_backward(
        model.rows(0, c.batch.rows), {.gradient_scale = 1, .accumulate = Accumulate::kNo});
    const Weights<double> weights = widened<double>(model.weights);
    const double want = ReferenceLlama<double>(c.config, weights)
                            .loss(model.rows(0, c.batch.rows), c.batch.seq_len);
    EXPECT_NEAR(loss, want, tolerance(storage) * want);
    const NamedValues gradients = bench.gradients();
    for (const auto& [name, values] : model.weights) {
      const Deviation d = deviation(gradients.at(name), reference_gradient(model, name));
      EXPECT_LE(d.relative_norm, tolerance(storage)) << name;
    }
  }
};

TEST_P(LlamaGradient, Fp32) { expect_gradients(DType::kF32); }

INSTANTIATE_TEST_SUITE_P(Models, LlamaGradient, testing::ValuesIn(gradient_cases()),
                         gradient_case_name);
INSTANTIATE_TEST_SUITE_P(Families, LlamaGradient, testing::ValuesIn(families(8)),
                         gradient_case_name);

// In BF16, a width of 2 or 8 shows little: if few large terms cancel, only the rounding of each is
// left.
std::vector<GradientCase> wider_cases() {
  LlamaConfig two_layers = shape(16, 7, 2), unpadded = shape(18, 13, 3);
  two_layers.num_hidden_layers = 2;
  unpadded.pad_multiple = 1;
  return {{"one_head", shape(16, 24, 1), {2, 5}, 0},
          {"three_heads", shape(18, 7, 3), {3, 4}, 0.3},
          {"two_layers", two_layers, {2, 6}, 0.2},
          {"unpadded", unpadded, {2, 6}, 0.2}};
}

class LlamaGradientBf16 : public LlamaGradient {};

TEST_P(LlamaGradientBf16, Bf16) { expect_gradients(DType::kBF16); }

INSTANTIATE_TEST_SUITE_P(Models, LlamaGradientBf16, testing::ValuesIn(wider_cases()),
                         gradient_case_name);
INSTANTIATE_TEST_SUITE_P(Families, LlamaGradientBf16, testing::ValuesIn(families(32)),
                         gradient_case_name);

// Nothing to predict: no loss, and every gradient is zero.
TEST(LlamaEdges, AllTargetsIgnored) {
  const LlamaConfig config = shape(8, 5, 2);
  const GoldenModel model = random_model(config, {2, 3}, {.ignored = 1});
  ModelBench bench(config, {.micro_batch = model.batch});
  bench.set_weights(model.weights);
  EXPECT_EQ(bench.llama().forward_backward(model.rows(0, 2),
                                           {.gradient_scale = 1, .accumulate = Accumulate::kNo}),
            0);
  for (const auto& [name, values] : bench.gradients())
    for (const float g : values) EXPECT_EQ(g, 0) << name;
}

}  // namespace
}  // namespace mpt::test
