// Embedding: the lookup copies, the gradient gathers; rows that no token used get exactly zero.
#include <gtest/gtest.h>

#include "model/closeness.h"
#include "model/op_bench.h"

namespace mpt::test {
namespace {

constexpr int64_t kVocab = 11;

// Uses of each row of the table, in the operation's format.
struct Uses {
  std::vector<int32_t> first, positions;
  explicit Uses(const std::vector<int32_t>& tokens) {
    for (int32_t v = 0; v < kVocab; ++v) {
      first.push_back(int32_t(positions.size()));
      for (size_t i = 0; i < tokens.size(); ++i)
        if (tokens[i] == v) positions.push_back(int32_t(i));
    }
    first.push_back(int32_t(positions.size()));
  }
};

// Token 3 many times, 0 and the last one once, 4 never.
std::vector<int32_t> some_tokens(int64_t n) {
  std::vector<int32_t> tokens(size_t(n), 3);
  if (n > 1) tokens[1] = 0;
  if (n > 2) tokens[size_t(n) - 1] = kVocab - 1;
  return tokens;
}

TEST(Embedding, ForwardCopiesBits) {
  for (const DType storage : {DType::kF32, DType::kBF16})
    for (const int64_t cols : {1, 7, 33, 1000}) {
      OpBench bench;
      const Matrix table = random_matrix(kVocab, cols, storage, 1);
      const std::vector<int32_t> tokens = some_tokens(5);
      const Tensor out = bench.empty(storage, 5, cols);
      bench.ops().embedding_forward(bench.put(storage, table), bench.put(tokens), out);
      const Matrix got = bench.get(out);
      for (int64_t r = 0; r < 5; ++r) EXPECT_EQ(got.row(r), table.row(tokens[size_t(r)]));
    }
}

struct EmbeddingCase {
  DType storage, container;
  Accumulate accumulate;
  int64_t tokens, cols;
};

std::vector<EmbeddingCase> embedding_cases() {
  std::vector<EmbeddingCase> all;
  for (const DType storage : {DType::kF32, DType::kBF16})
    for (const DType container : {DType::kF32, DType::kBF16})
      for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes})
        for (const auto& [tokens, cols] :
             {std::pair<int64_t, int64_t>{1, 1}, {63, 7}, {130, 33}, {65, 1000}})
          all.push_back({storage, container, accumulate, tokens, cols});
  return all;
}

std::string embedding_case_name(const testing::TestParamInfo<EmbeddingCase>& info) {
  const EmbeddingCase& c = info.param;
  return fmt::format("{}_into_{}_{}_{}x{}", name_of(c.storage), name_of(c.container),
                     c.accumulate == Accumulate::kYes ? "add" : "overwrite", c.tokens, c.cols);
}

class EmbeddingGradient : public testing::TestWithParam<EmbeddingCase> {};

TEST_P(EmbeddingGradient, SumsTheUses) {
  const EmbeddingCase& c = GetParam();
  OpBench bench;
  const std::vector<int32_t> tokens = some_tokens(c.tokens);
  const Uses uses(tokens);
  const Matrix d_out = random_matrix(c.tokens, c.cols, c.storage, 2),
               before = random_matrix(kVocab, c.cols, c.container, 3);
  const Tensor d_table = bench.put(c.container, before);
  bench.ops().embedding_backward({.d_out = bench.put(c.storage, d_out),
                                  .first = bench.put(uses.first),
                                  .uses = bench.put(uses.positions),
                                  .d_table = d_table,
                                  .accumulate = c.accumulate});
  const Matrix got = bench.get(d_table);
  for (int32_t v = 0; v < kVocab; ++v)
    for (int64_t col = 0; col < c.cols; ++col) {
      const double old = c.accumulate == Accumulate::kYes ? before.at(v, col) : 0;
      double want = old, largest = std::abs(old);
      for (int64_t i = 0; i < c.tokens; ++i)
        if (tokens[size_t(i)] == v) {
          want += d_out.at(i, col);
          largest += std::abs(d_out.at(i, col));
        }
      const int32_t count = uses.first[size_t(v) + 1] - uses.first[size_t(v)];
      if (count == 0)
        EXPECT_EQ(got.at(v, col), old) << "row " << v << " was used by no token";
      else
        expect_near(got.at(v, col), want, largest, {c.container, 1, double(count)}, "d_table");
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, EmbeddingGradient, testing::ValuesIn(embedding_cases()),
                         embedding_case_name);

TEST(Embedding, FirstUsesFollowFromTheSortedPositions) {
  for (const int64_t n : {0, 1, 7, 100}) {
    OpBench bench;
    const std::vector<int32_t> tokens = some_tokens(n);
    const Uses uses(tokens);
    const Tensor first = bench.put(std::vector<int32_t>(uses.first.size(), -1));
    bench.ops().find_first_uses(bench.put(tokens), bench.put(uses.positions), first);
    const auto* found = first.as<int32_t>();
    EXPECT_EQ(std::vector<int32_t>(found, found + uses.first.size()), uses.first) << n << " tokens";
  }
}

TEST(Embedding, NoTokensClearTheGradient) {
  OpBench bench;
  const Uses uses({});
  const Tensor d_table = bench.put(DType::kF32, random_matrix(kVocab, 7, DType::kF32, 3));
  bench.ops().embedding_backward({.d_out = bench.empty(DType::kF32, 0, 7),
                                  .first = bench.put(uses.first),
                                  .uses = bench.put(uses.positions),
                                  .d_table = d_table,
                                  .accumulate = Accumulate::kNo});
  EXPECT_EQ(bench.get(d_table).values, std::vector<double>(size_t(kVocab) * 7, 0.0));
}

}  // namespace
}  // namespace mpt::test
