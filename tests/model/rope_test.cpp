// RoPE with its table: rotation, its adjoint and the elements that it must not change.
#include <gtest/gtest.h>

#include "model/closeness.h"
#include "model/formulas/rope_table.h"
#include "model/op_bench.h"
#include "model/reference.h"

namespace mpt::test {
namespace {

struct RopeCase {
  DType storage;
  int64_t heads, head_dim, rows, seq_len, first_position;
};

std::string rope_case_name(const testing::TestParamInfo<RopeCase>& info) {
  const RopeCase& c = info.param;
  return fmt::format("{}_h{}_d{}_n{}_t{}_from{}", name_of(c.storage), c.heads, c.head_dim, c.rows,
                     c.seq_len, c.first_position);
}

// The backward rotation is by the negative angle: the adjoint, by the complex step.
TEST(RopeReference, AdjointIsTheInverseRotation) {
  const HeadShape shape{.heads = 2, .head_dim = 6};
  const auto x = random_matrix(1, 12, DType::kF32, 1).row(0),
             dy = random_matrix(1, 12, DType::kF32, 2).row(0);
  const auto want = complex_step(x, [&](const auto& p) {
    return dot<Complex>(reference_rope<Complex>(p, shape, 5),
                        std::vector<Complex>(dy.begin(), dy.end()));
  });
  const auto back = reference_rope<double>(dy, shape, -5);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(back[i], want[i], 1e-14);
}

class RopeOp : public testing::TestWithParam<RopeCase> {
 protected:
  Matrix rotated(float direction, const std::vector<int32_t>& document_begin = {}) {
    const int64_t positions = c_.first_position + c_.seq_len;
    const LlamaConfig config{.hidden_size = c_.heads * c_.head_dim,
                             .num_attention_heads = c_.heads};
    const auto allocator = bench_.device().make_allocator();
    const RopeTable table(config, positions, bench_.device(), *allocator);
    const Tensor qkv = bench_.put(c_.storage, in_);
    bench_.ops().rope(
        {.qkv = qkv,
         .cosine = table.cosine,
         .sine = table.sine,
         .rotated_heads = 2 * c_.heads,
         .head_dim = c_.head_dim,
         .seq_len = c_.seq_len,
         .first_position = c_.first_position,
         .direction = direction,
         .document_begin = document_begin.empty() ? Tensor{} : bench_.put(document_begin)});
    return bench_.get(qkv);
  }

  RopeCase c_ = GetParam();
  OpBench bench_;
  Matrix in_ = random_matrix(c_.rows, 3 * c_.heads * c_.head_dim, c_.storage, 7);
};

TEST_P(RopeOp, BothDirections) {
  const int64_t width = c_.heads * c_.head_dim;
  const HeadShape shape{.heads = 2 * c_.heads, .head_dim = c_.head_dim};
  for (const float direction : {1.0f, -1.0f}) {
    const Matrix got = rotated(direction);
    for (int64_t r = 0; r < c_.rows; ++r) {
      const std::vector<double> row = in_.row(r);
      const double position = direction * double(c_.first_position + r % c_.seq_len);
      const auto want =
          reference_rope<double>({row.begin(), row.begin() + 2 * width}, shape, position);
      for (int64_t c = 0; c < 3 * width; ++c) {
        if (c >= 2 * width) {
          EXPECT_EQ(got.at(r, c), in_.at(r, c)) << "V changed";
          continue;
        }
        const int64_t half = c_.head_dim / 2,
                      partner = c % c_.head_dim < half ? c + half : c - half;
        expect_near(got.at(r, c), want[size_t(c)],
                    std::abs(in_.at(r, c)) + std::abs(in_.at(r, partner)), {c_.storage, 1, 4},
                    "rotated");
      }
    }
  }
}

// The bits of a separate row for each document.
TEST_P(RopeOp, PositionsCountFromTheDocument) {
  std::vector<int32_t> begins;
  for (int64_t r = 0; r < c_.rows; ++r) {
    const int64_t t = r % c_.seq_len;
    begins.push_back(int32_t(t - t % 3));  // documents of three tokens
  }
  for (const float direction : {1.0f, -1.0f}) {
    const Matrix got = rotated(direction, begins);
    const int64_t seq_len = std::exchange(c_.seq_len, 3);
    for (int64_t r = 0; r < c_.rows; ++r) {
      // In rows of three tokens this one has the same position if moved there.
      Matrix in = std::exchange(in_, random_matrix(3, in_.cols, c_.storage, 1));
      const int64_t place = r % seq_len % 3;
      for (int64_t c = 0; c < in.cols; ++c) in_.at(place, c) = in.at(r, c);
      const Matrix want = rotated(direction);
      std::swap(in, in_);
      for (int64_t c = 0; c < in_.cols; ++c) ASSERT_EQ(got.at(r, c), want.at(place, c)) << r;
    }
    c_.seq_len = seq_len;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, RopeOp,
    testing::Values(RopeCase{DType::kF32, 1, 2, 1, 1, 0}, RopeCase{DType::kF32, 3, 6, 26, 13, 0},
                    RopeCase{DType::kF32, 1, 64, 70, 70, 0},
                    RopeCase{DType::kF32, 2, 8, 1, 1, 1023}, RopeCase{DType::kF32, 2, 8, 5, 5, 60},
                    RopeCase{DType::kF32, 2, 8, 0, 5, 0}, RopeCase{DType::kBF16, 3, 6, 26, 13, 0},
                    RopeCase{DType::kBF16, 1, 64, 70, 70, 0}),
    rope_case_name);

TEST(RopeTableTest, ValuesAreRoundedFromFp64) {
  const LlamaConfig config{.hidden_size = 128, .num_attention_heads = 2, .rope_theta = 500000};
  OpBench bench;
  const auto allocator = bench.device().make_allocator();
  const RopeTable table(config, 2049, bench.device(), *allocator);
  ASSERT_EQ(table.cosine.rows, 2049);
  ASSERT_EQ(table.cosine.cols, 32);
  const Matrix cosine = bench.get(table.cosine), sine = bench.get(table.sine);
  for (const int64_t t : {0, 1, 1000, 2048})
    for (const int64_t i : {0, 1, 17, 31}) {
      const double angle = double(t) / std::pow(500000.0, double(2 * i) / 64);
      EXPECT_NEAR(cosine.at(t, i), std::cos(angle), 1.01 * kFp32Rounding);
      EXPECT_NEAR(sine.at(t, i), std::sin(angle), 1.01 * kFp32Rounding);
    }
}

// Llama-3.2-1B's frequencies by the reference: the highest kept, the lowest divided.
TEST(RopeTableTest, LongerContexts) {
  LlamaConfig config{.hidden_size = 2048, .num_attention_heads = 32, .rope_theta = 500000};
  config.rope_scaling = {.rope_type = RopeType::kLlama3, .factor = 32};
  const HeadShape shape{
      .heads = 32, .head_dim = 64, .theta = config.rope_theta, .scaling = config.rope_scaling};
  for (int64_t i = 0; i < 32; ++i) {
    const double want = reference_frequency(shape, i);
    EXPECT_NEAR(rotary_frequency(config, i), want, 1e-14 * want) << i;
  }
  const double plain = 1 / std::pow(500000.0, 2.0 * 31 / 64);
  EXPECT_DOUBLE_EQ(rotary_frequency(config, 31), plain / 32);
  EXPECT_EQ(rotary_frequency(config, 0), 1);
  config.rope_scaling = {.rope_type = RopeType::kLinear, .factor = 2};
  EXPECT_DOUBLE_EQ(rotary_frequency(config, 31), plain / 2);
}

}  // namespace
}  // namespace mpt::test
