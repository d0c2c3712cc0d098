// Attention of one token at a time over the cache, against FP64 and against the attention of whole
// sequences.
#include <gtest/gtest.h>

#include "model/closeness.h"
#include "model/op_bench.h"
#include "model/reference.h"

namespace mpt::test {
namespace {

struct AttentionCase {
  DType storage;
  int64_t heads, key_value_heads, head_dim, tokens;
};

std::string cached_case_name(const testing::TestParamInfo<AttentionCase>& info) {
  const AttentionCase& c = info.param;
  return fmt::format("{}_h{}_k{}_d{}_t{}", name_of(c.storage), c.heads, c.key_value_heads,
                     c.head_dim, c.tokens);
}

class CachedAttentionOp : public testing::TestWithParam<AttentionCase> {
 protected:
  // Feeds the tokens one by one; returns all outputs.
  Matrix generate() {
    Matrix out(c_.tokens, width_);
    const Tensor scores = bench_.empty(DType::kF32, c_.heads, positions_),
                 row = bench_.empty(c_.storage, 1, width_);
    for (int64_t t = 0; t < c_.tokens; ++t) {
      Matrix token(1, width_ + 2 * key_width_);
      token.values = qkv_.row(t);
      bench_.ops().cached_attention({.qkv = bench_.put(c_.storage, token),
                                     .keys = keys_,
                                     .values = values_,
                                     .scores = scores,
                                     .out = row,
                                     .heads = c_.heads,
                                     .key_value_heads = c_.key_value_heads,
                                     .head_dim = c_.head_dim,
                                     .past = t});
      std::ranges::copy(bench_.get(row).values, out.values.begin() + t * width_);
    }
    return out;
  }
  [[nodiscard]] std::vector<double> part(int64_t token, int64_t which) const {
    const std::vector<double> row = qkv_.row(token);
    if (which == 0) return {row.begin(), row.begin() + width_};
    const auto first = row.begin() + width_ + (which - 1) * key_width_;
    return {first, first + key_width_};
  }
  // FP32 roundings of the scores (absolute, so relative in the probabilities) and of the sums over
  // D and T.
  [[nodiscard]] Bound bound(double largest_score) const {
    return {c_.storage, 1,
            (double(c_.head_dim) / 32 + 16) * (1 + 2 * largest_score) + 2 * double(c_.tokens)};
  }
  // The largest sum of magnitudes in a score.
  [[nodiscard]] double largest_score() const {
    double norm = 0;
    for (int64_t t = 0; t < c_.tokens; ++t)
      for (const int64_t which : {0, 1})
        norm = std::max(norm, dot<double>(part(t, which), part(t, which)));
    return norm / std::sqrt(double(c_.head_dim));
  }
  [[nodiscard]] double largest_value() const {
    double most = 0;
    for (int64_t t = 0; t < c_.tokens; ++t)
      for (const double v : part(t, 2)) most = std::max(most, std::abs(v));
    return most;
  }

  AttentionCase c_ = GetParam();
  int64_t width_ = c_.heads * c_.head_dim, key_width_ = c_.key_value_heads * c_.head_dim,
          positions_ = c_.tokens + 3;
  OpBench bench_;
  Matrix qkv_ = random_matrix(c_.tokens, width_ + 2 * key_width_, c_.storage, 11);
  Matrix marker_ = random_matrix(positions_, key_width_, c_.storage, 12);
  Tensor keys_ = bench_.put(c_.storage, marker_), values_ = bench_.put(c_.storage, marker_);
};

TEST_P(CachedAttentionOp, IsAttentionOverAllTokensSoFar) {
  const Matrix got = generate();
  std::vector<std::vector<double>> keys, values;
  for (int64_t t = 0; t < c_.tokens; ++t) {
    keys.push_back(part(t, 1));
    values.push_back(part(t, 2));
    const auto want = reference_attention<double>(
        part(t, 0), keys, values,
        {.heads = c_.heads, .head_dim = c_.head_dim, .readers = c_.heads / c_.key_value_heads});
    for (int64_t c = 0; c < width_; ++c)
      expect_near(got.at(t, c), want[size_t(c)], largest_value(), bound(largest_score()), "output");
  }
}

TEST_P(CachedAttentionOp, IsTheAttentionOfWholeSequences) {
  const Matrix got = generate();
  const AttentionShape shape{1, c_.tokens, c_.heads, c_.key_value_heads, c_.head_dim};
  const auto allocator = bench_.device().make_allocator();
  bench_.device().attention().reserve(*allocator, shape, c_.storage);
  const Tensor out = bench_.empty(c_.storage, c_.tokens, width_);
  bench_.device().attention().forward(
      {.shape = shape,
       .qkv = bench_.put(c_.storage, qkv_),
       .out = out,
       .log_sum_exp = bench_.empty(DType::kF32, c_.heads, c_.tokens)});
  const Matrix whole = bench_.get(out);
  Bound b = bound(largest_score());
  b.roundings *= 2, b.terms *= 2;  // both results are rounded
  for (size_t i = 0; i < got.values.size(); ++i)
    expect_near(got.values[i], whole.values[i], largest_value(), b, "output");
}

TEST_P(CachedAttentionOp, TheCacheHoldsTheTokensAndNothingElse) {
  generate();
  const Matrix keys = bench_.get(keys_), values = bench_.get(values_);
  for (int64_t t = 0; t < positions_; ++t) {
    EXPECT_EQ(keys.row(t), t < c_.tokens ? part(t, 1) : marker_.row(t)) << t;
    EXPECT_EQ(values.row(t), t < c_.tokens ? part(t, 2) : marker_.row(t)) << t;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CachedAttentionOp,
                         testing::Values(AttentionCase{DType::kF32, 1, 1, 2, 1},
                                         AttentionCase{DType::kF32, 3, 3, 6, 5},
                                         AttentionCase{DType::kF32, 1, 1, 64, 70},
                                         AttentionCase{DType::kF32, 4, 4, 8, 49},
                                         AttentionCase{DType::kF32, 4, 2, 8, 49},
                                         AttentionCase{DType::kF32, 3, 1, 6, 5},
                                         AttentionCase{DType::kBF16, 3, 3, 6, 5},
                                         AttentionCase{DType::kBF16, 6, 2, 8, 9},
                                         AttentionCase{DType::kBF16, 2, 2, 64, 33}),
                         cached_case_name);

}  // namespace
}  // namespace mpt::test
