// Documents that share a row do not see each other: losses and gradients are those of separate
// ones.
#include <gtest/gtest.h>

#include "model/closeness.h"
#include "model/model_bench.h"
#include "model/random_model.h"

namespace mpt::test {
namespace {

LlamaConfig small_model() {
  return {.hidden_size = 32,
          .intermediate_size = 40,
          .num_hidden_layers = 2,
          .num_attention_heads = 4,
          .num_key_value_heads = 2,
          .vocab_size = 61};
}

// A row that these documents fill, without targets across them.
GoldenModel packed_row(const std::vector<int64_t>& lengths, DType storage) {
  int64_t tokens = 0;
  for (const int64_t length : lengths) tokens += length;
  GoldenModel row = random_model(small_model(), {1, tokens}, {.storage = storage, .seed = 5});
  for (const int64_t length : lengths) {
    const auto begin = int32_t(row.document_begin.size());
    row.document_begin.insert(row.document_begin.end(), size_t(length), begin);
    row.targets[size_t(begin + length - 1)] = kIgnoreTarget;
  }
  return row;
}

GoldenModel alone(const GoldenModel& row, int64_t begin, int64_t length) {
  GoldenModel one{.config = row.config, .batch = {1, length}, .weights = row.weights};
  one.tokens.assign(row.tokens.begin() + begin, row.tokens.begin() + begin + length);
  one.targets.assign(row.targets.begin() + begin, row.targets.begin() + begin + length);
  return one;
}

struct Results {
  double loss = 0;
  std::vector<float> of_tokens;
  NamedValues gradients;
};

Results results_of(const GoldenModel& model, DType storage, AttentionScope attention) {
  ModelBench bench(model.config,
                   {.micro_batch = model.batch, .storage = storage, .attention = attention});
  bench.set_weights(model.weights);
  Results results;
  results.loss = bench.llama().forward_backward(
      model.rows(0, 1), {.gradient_scale = 1, .accumulate = Accumulate::kNo});
  const auto losses = bench.llama().token_losses();
  results.of_tokens.assign(losses.begin(), losses.end());
  results.gradients = bench.gradients();
  return results;
}

class LlamaDocuments : public testing::TestWithParam<DType> {};

// If documents begin at tiles of attention (64 tokens), every loss is bit-identical, and so is
// their sum except for the order in which FP64 adds it. Gradients of weights are sums over tokens,
// added in another order: 256 FP32 terms, each at most as large as the whole.
TEST_P(LlamaDocuments, AtTilesHaveTheLossesOfTheirOwn) {
  const std::vector<int64_t> lengths{64, 128, 64};
  const GoldenModel row = packed_row(lengths, GetParam());
  const Results packed = results_of(row, GetParam(), AttentionScope::kDocument);
  double loss = 0;
  NamedValues gradients;
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    const Results one = results_of(alone(row, begin, length), GetParam(), AttentionScope::kRow);
    for (int64_t t = 0; t < length; ++t)
      ASSERT_EQ(packed.of_tokens[size_t(begin + t)], one.of_tokens[size_t(t)]) << begin << "+" << t;
    loss += one.loss;
    for (const auto& [name, values] : one.gradients) {
      std::vector<float>& sum = gradients[name];
      sum.resize(values.size());
      for (size_t i = 0; i < values.size(); ++i) sum[i] += values[i];
    }
    begin += length;
  }
  EXPECT_NEAR(packed.loss, loss, 256 * 0x1p-53 * loss);
  for (const auto& [name, values] : packed.gradients)
    EXPECT_LE(deviation(values, gradients.at(name)).relative_norm, 256 * kFp32Rounding) << name;
}

// Elsewhere tiles of attention are split differently, so its sums are added in another order: a
// token's loss is off by the effect of a few roundings to the storage type.
TEST_P(LlamaDocuments, AnywhereHaveTheLossesOfTheirOwn) {
  const std::vector<int64_t> lengths{1, 37, 2, 90, 63, 7};
  const GoldenModel row = packed_row(lengths, GetParam());
  const Results packed = results_of(row, GetParam(), AttentionScope::kDocument);
  const double rounding = GetParam() == DType::kBF16 ? kBf16Rounding : 4 * kFp32Rounding;
  // Like in llama_gradient_test.cpp: 13 roundings per layer and 4 at the end.
  const double tolerance = 3 * std::sqrt(30.0) * rounding;
  double loss = 0;
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    const Results one = results_of(alone(row, begin, length), GetParam(), AttentionScope::kRow);
    for (int64_t t = 0; t < length; ++t)
      EXPECT_NEAR(packed.of_tokens[size_t(begin + t)], one.of_tokens[size_t(t)],
                  tolerance * std::max(1.0f, one.of_tokens[size_t(t)]))
          << begin << "+" << t;
    loss += one.loss;
    begin += length;
  }
  EXPECT_NEAR(packed.loss, loss, tolerance * loss);
  // Attention over the row gives another loss, by far more than the difference left here.
  const Results seen = results_of(
      [&] {
        GoldenModel without = row;
        without.document_begin.clear();
        return without;
      }(),
      GetParam(), AttentionScope::kRow);
  EXPECT_GT(std::abs(seen.loss - loss), 10 * std::abs(packed.loss - loss));
}

// Whatever another document contains, these losses keep their bits.
TEST_P(LlamaDocuments, DoNotSeeEachOther) {
  const GoldenModel row = packed_row({30, 50, 40}, GetParam());
  GoldenModel other = row;
  for (size_t t = 0; t < 30; ++t) other.tokens[t] = (other.tokens[t] + 7) % 61;
  for (size_t t = 80; t < 120; ++t) other.tokens[t] = (other.tokens[t] + 3) % 61;
  const Results a = results_of(row, GetParam(), AttentionScope::kDocument),
                b = results_of(other, GetParam(), AttentionScope::kDocument);
  for (size_t t = 30; t < 80; ++t) ASSERT_EQ(a.of_tokens[t], b.of_tokens[t]) << t;
  EXPECT_NE(a.of_tokens[5], b.of_tokens[5]);
}

INSTANTIATE_TEST_SUITE_P(Storage, LlamaDocuments, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& instance) { return std::string(name_of(instance.param)); });

// Several micro-batches of several rows, recomputed, evaluated and unnamed.
TEST(LlamaDocumentBatches, TakeTheBeginningsOfTheirRows) {
  const GoldenModel model =
      random_model(small_model(), {6, 70}, {.ignored = 0.1, .seed = 9, .documents = 0.1});
  const auto bench_of = [&](int64_t rows, Recompute recompute) {
    auto bench = std::make_unique<ModelBench>(model.config,
                                              BenchOptions{.micro_batch = {rows, 70},
                                                           .additions = 6,
                                                           .recompute = recompute,
                                                           .attention = AttentionScope::kDocument});
    bench->set_weights(model.weights);
    return bench;
  };
  const auto whole = bench_of(6, Recompute::kNone), parts = bench_of(4, Recompute::kBlock);
  const double loss = whole->step(model, 6);
  EXPECT_NEAR(parts->step(model, 4), loss, 1e-6 * loss);
  EXPECT_NEAR(whole->llama().evaluate(model.rows(0, 6)), loss, 1e-9 * loss);
  const NamedValues a = whole->gradients(), b = parts->gradients();
  for (const auto& [name, values] : a)
    EXPECT_LE(deviation(values, b.at(name)).relative_norm, 64 * kFp32Rounding) << name;
}

TEST(LlamaDocumentBatches, AreRefusedIfTheyMakeNoDocuments) {
  ModelBench bench(small_model(), {.micro_batch = {1, 4}, .attention = AttentionScope::kDocument}),
      rows(small_model(), {.micro_batch = {1, 4}});
  const std::vector<int32_t> ids{1, 2, 3, 4};
  const auto with = [&](const std::vector<int32_t>& begins, ModelBench& of) {
    of.llama().evaluate({ids, ids, begins});
  };
  EXPECT_NO_THROW(with({0, 1, 1, 3}, bench));
  EXPECT_NO_THROW(with({}, bench));
  for (const std::vector<int32_t>& begins : std::vector<std::vector<int32_t>>{
           {0, 0, 0}, {1, 1, 1, 1}, {0, 2, 2, 2}, {0, 0, 2, 0}, {0, 0, -1, -1}, {0, 0, 1, 1}})
    EXPECT_THROW(with(begins, bench), LogicError);
  EXPECT_THROW(with({0, 0, 0, 0}, rows), LogicError);
}

}  // namespace
}  // namespace mpt::test
