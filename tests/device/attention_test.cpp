// Attention of the CPU against naive FP64 code, forward and backward, with derived tolerances.
#include "device/attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>
#include <omp.h>

#include "device/cpu/cpu_attention.h"
#include "device/cpu/cpu_device.h"
#include "device/expect_rounded.h"
#include "device/naive_attention.h"
#include "support/draws.h"
#include "support/host_matrix.h"

namespace mpt {
namespace {

using test::Bounded;
using test::Draws;
using test::HeadInputs;
using test::HostMatrix;
using test::NaiveAttention;

// Inputs and outputs of both passes, guarded between and behind the rows.
struct Problem {
  AttentionShape shape;
  DType dtype;
  HostMatrix qkv, out, log_sum_exp, d_out, d_qkv;

  Problem(const AttentionShape& s, DType type, double spread = 1.0, int64_t padding = 3)
      : shape(s),
        dtype(type),
        qkv(type, {s.batch * s.seq_len, 3 * s.heads * s.head_dim, padding}),
        out(type, {s.batch * s.seq_len, s.heads * s.head_dim, padding}),
        log_sum_exp(DType::kF32, {s.batch * s.heads, s.seq_len, padding}),
        d_out(type, {s.batch * s.seq_len, s.heads * s.head_dim, padding}),
        d_qkv(type, {s.batch * s.seq_len, 3 * s.heads * s.head_dim, padding}) {
    Draws draws(41);
    qkv.fill([&](int64_t, int64_t c) { return draws.bell(c < 2 * s.heads * s.head_dim ? spread : 1.0); });
    d_out.fill([&](int64_t, int64_t) { return draws.bell(1); });
    for (HostMatrix* written : {&out, &d_qkv}) written->fill([](int64_t, int64_t) { return NAN; });
    log_sum_exp.fill([](int64_t, int64_t) { return NAN; });
  }
  [[nodiscard]] AttentionForward forward() const { return {shape, qkv, out, log_sum_exp}; }
  [[nodiscard]] AttentionBackward backward() const { return {shape, qkv, out, log_sum_exp, d_out, d_qkv}; }
  [[nodiscard]] HeadInputs head_inputs(int64_t sequence, int64_t head) const {
    const int64_t c = shape.heads * shape.head_dim;
    HeadInputs in({shape.seq_len, shape.head_dim});
    for (int64_t t = 0; t < shape.seq_len; ++t)
      for (int64_t d = 0; d < shape.head_dim; ++d) {
        const int64_t row = sequence * shape.seq_len + t, col = head * shape.head_dim + d;
        in.q(t, d) = qkv.at(row, col);
        in.k(t, d) = qkv.at(row, c + col);
        in.v(t, d) = qkv.at(row, 2 * c + col);
        in.d_out(t, d) = d_out.at(row, col);
      }
    return in;
  }
};

class CpuAttentionTest : public testing::Test {
 protected:
  void reserve(const AttentionShape& shape) { device_->attention().reserve(*allocator_, shape); }
  void run(const Problem& p) {
    reserve(p.shape);
    device_->attention().forward(p.forward());
    device_->attention().backward(p.backward());
  }

  std::unique_ptr<Device> device_ = make_cpu_device(3);
  std::unique_ptr<Allocator> allocator_ = device_->make_allocator();
};

struct Slice {
  const HostMatrix& matrix;
  int64_t row, col;
  const char* name;
};

void expect_within(const Bounded& expected, const Slice& found, DType dtype) {
  for (int64_t t = 0; t < expected.value.rows; ++t)
    for (int64_t d = 0; d < expected.value.cols; ++d)
      ASSERT_TRUE(test::is_rounded(found.matrix.at(found.row + t, found.col + d), expected.value(t, d),
                                   expected.error(t, d), dtype))
          << found.name << " of token " << t << " dim " << d;
}

void expect_all_heads(const Problem& p) {
  const AttentionShape& s = p.shape;
  const int64_t c = s.heads * s.head_dim;
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t h = 0; h < s.heads; ++h) {
      const HeadInputs in = p.head_inputs(b, h);
      const NaiveAttention naive({s.seq_len, s.head_dim}, in, test::unit_of(p.dtype));
      const int64_t row = b * s.seq_len, col = h * s.head_dim;
      expect_within(naive.out, {p.out, row, col, "O"}, p.dtype);
      expect_within(naive.d_q, {p.d_qkv, row, col, "dQ"}, p.dtype);
      expect_within(naive.d_k, {p.d_qkv, row, c + col, "dK"}, p.dtype);
      expect_within(naive.d_v, {p.d_qkv, row, 2 * c + col, "dV"}, p.dtype);
      for (int64_t t = 0; t < s.seq_len; ++t)
        ASSERT_NEAR(p.log_sum_exp.at(b * s.heads + h, t), naive.lse.value(t, 0), naive.lse.error(t, 0)) << t;
    }
}

void expect_nothing_else_written(const Problem& p) {
  for (const HostMatrix* written : {&p.out, &p.log_sum_exp, &p.d_qkv})
    EXPECT_TRUE(written->padding_untouched());
}

TEST_F(CpuAttentionTest, ForwardAndBackward) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t tokens : {1, 2, 47, 48, 49, 97, 130})
      for (const int64_t dim : {2, 8, 16, 24, 64, 80}) {
        SCOPED_TRACE(fmt::format("{} T {} D {}", name_of(dtype), tokens, dim));
        Problem p({.batch = 2, .seq_len = tokens, .heads = 3, .head_dim = dim}, dtype);
        const HostMatrix qkv = p.qkv, d_out = p.d_out;
        run(p);
        ASSERT_NO_FATAL_FAILURE(expect_all_heads(p));
        expect_nothing_else_written(p);
        EXPECT_EQ(p.qkv, qkv);
        EXPECT_EQ(p.d_out, d_out);
      }
}

// Scores far beyond what exp can take: +-1e4.
TEST_F(CpuAttentionTest, LargeScores) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Problem p({.batch = 1, .seq_len = 100, .heads = 2, .head_dim = 16}, dtype, 70.0);
    double largest = 0;
    const HeadInputs in = p.head_inputs(0, 0);
    for (int64_t d = 0; d < 16; ++d) largest += std::fabs(in.q(0, d) * in.k(0, d)) / 4;
    ASSERT_GT(largest, 1e4);
    run(p);
    for (int64_t t = 0; t < 100; ++t) {
      for (int64_t c = 0; c < 32; ++c) ASSERT_TRUE(std::isfinite(p.out.at(t, c)));
      for (int64_t c = 0; c < 96; ++c) ASSERT_TRUE(std::isfinite(p.d_qkv.at(t, c)));
    }
    expect_all_heads(p);
  }
}

// One key far above the rest takes all of the probability; far below, none.
TEST_F(CpuAttentionTest, OneDominantKey) {
  for (const float score : {1e4f, -1e4f}) {
    Problem p({.batch = 1, .seq_len = 60, .heads = 1, .head_dim = 8}, DType::kF32);
    p.qkv.fill([&](int64_t t, int64_t c) {
      if (c < 8) return c == 0 ? std::sqrt(8.0f) : 0.0f;    // Q
      if (c < 16) return t == 20 && c == 8 ? score : 0.0f;  // K
      return t == 20 ? 7.0f : 1.0f;                         // V
    });
    run(p);
    EXPECT_EQ(p.out.at(59, 3), score > 0 ? 7.0f : 1.0f);
    EXPECT_EQ(p.out.at(19, 3), 1.0f);
    expect_all_heads(p);
  }
}

// No token sees a later one: changing the last tokens leaves the bits of the rows before them.
TEST_F(CpuAttentionTest, IsCausal) {
  Problem p({.batch = 1, .seq_len = 100, .heads = 2, .head_dim = 24}, DType::kF32), q = p;
  for (int64_t t = 60; t < 100; ++t)
    for (int64_t c = 0; c < 144; ++c) q.qkv.set(t, c, -3 * q.qkv.at(t, c) + 1);
  run(p);
  run(q);
  for (int64_t t = 0; t < 100; ++t)
    for (int64_t c = 0; c < 48; ++c) {
      if (t < 60) {
        ASSERT_EQ(p.out.bits(t, c), q.out.bits(t, c));
      } else {
        ASSERT_NE(p.out.bits(t, c), q.out.bits(t, c));
      }
    }
}

TEST_F(CpuAttentionTest, ThreadsDoNotMatter) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const AttentionShape shape{.batch = 2, .seq_len = 97, .heads = 3, .head_dim = 24};
    omp_set_num_threads(1);
    Problem one(shape, dtype);
    run(one);
    for (const int threads : {2, 3}) {
      omp_set_num_threads(threads);
      Problem many(shape, dtype);
      run(many);
      EXPECT_EQ(many.out, one.out) << threads;
      EXPECT_EQ(many.log_sum_exp, one.log_sum_exp) << threads;
      EXPECT_EQ(many.d_qkv, one.d_qkv) << threads;
    }
  }
}

// Heads and sequences are computed alone: the bits of one do not depend on its neighbours.
TEST_F(CpuAttentionTest, HeadsAndSequencesAreIndependent) {
  Problem p({.batch = 2, .seq_len = 50, .heads = 2, .head_dim = 8}, DType::kF32);
  Problem alone({.batch = 1, .seq_len = 50, .heads = 1, .head_dim = 8}, DType::kF32);
  for (int64_t t = 0; t < 50; ++t) {
    for (int64_t c = 0; c < 24; ++c) alone.qkv.set(t, c, p.qkv.at(50 + t, c / 8 * 16 + 8 + c % 8));
    for (int64_t c = 0; c < 8; ++c) alone.d_out.set(t, c, p.d_out.at(50 + t, 8 + c));
  }
  run(p);
  run(alone);
  for (int64_t t = 0; t < 50; ++t) {
    for (int64_t c = 0; c < 8; ++c) ASSERT_EQ(alone.out.bits(t, c), p.out.bits(50 + t, 8 + c));
    for (int64_t c = 0; c < 24; ++c)
      ASSERT_EQ(alone.d_qkv.bits(t, c), p.d_qkv.bits(50 + t, c / 8 * 16 + 8 + c % 8));
  }
}

TEST_F(CpuAttentionTest, NothingToDo) {
  for (const AttentionShape& shape :
       {AttentionShape{0, 5, 2, 8}, AttentionShape{2, 5, 0, 8}, AttentionShape{2, 0, 2, 8}}) {
    Problem p(shape, DType::kF32);
    run(p);
    expect_nothing_else_written(p);
  }
}

TEST_F(CpuAttentionTest, WithoutScratchIsALogicError) {
  const Problem p({.batch = 1, .seq_len = 50, .heads = 1, .head_dim = 8}, DType::kF32);
  EXPECT_THROW(device_->attention().forward(p.forward()), LogicError);
  EXPECT_THROW(device_->attention().backward(p.backward()), LogicError);
  reserve({.batch = 1, .seq_len = 48, .heads = 1, .head_dim = 8});
  EXPECT_THROW(device_->attention().forward(p.forward()), LogicError);
  reserve(p.shape);
  EXPECT_NO_THROW(device_->attention().forward(p.forward()));
}

TEST_F(CpuAttentionTest, PlansWhatItAllocates) {
  const AttentionShape shape{.batch = 4, .seq_len = 130, .heads = 3, .head_dim = 24};
  PlanningAllocator planned;
  CpuAttention(3).reserve(planned, shape);
  reserve(shape);
  EXPECT_EQ(planned.use().of(Purpose::kScratch), allocator_->use().of(Purpose::kScratch));
  EXPECT_GT(planned.use().total(), 0);
  // Memory grows with the sequence, not with its square, and not with batch or heads.
  PlanningAllocator longer, wider;
  CpuAttention(3).reserve(longer, {.batch = 4, .seq_len = 1300, .heads = 3, .head_dim = 24});
  CpuAttention(3).reserve(wider, {.batch = 40, .seq_len = 130, .heads = 30, .head_dim = 24});
  EXPECT_LT(longer.use().total(), 11 * planned.use().total());
  EXPECT_EQ(wider.use().total(), planned.use().total());
}

// The oracle itself: its gradients are the finite differences of its output.
double weighted_output(const HeadInputs& in) {
  const NaiveAttention naive({in.q.rows, in.q.cols}, in, 0);
  double sum = 0;
  for (size_t i = 0; i < in.d_out.data.size(); ++i) sum += in.d_out.data[i] * naive.out.value.data[i];
  return sum;
}

TEST(NaiveAttention, GradientsAreFiniteDifferences) {
  HeadInputs in({7, 5});
  Draws draws(42);
  for (test::Matrix64* m : {&in.q, &in.k, &in.v, &in.d_out})
    for (double& x : m->data) x = draws.bell(1);
  const NaiveAttention naive({7, 5}, in, 0);
  const struct {
    test::Matrix64& input;
    const test::Matrix64& gradient;
  } pairs[] = {{in.q, naive.d_q.value}, {in.k, naive.d_k.value}, {in.v, naive.d_v.value}};
  constexpr double kStep = 1e-5;
  for (const auto& [input, gradient] : pairs)
    for (size_t i = 0; i < input.data.size(); ++i) {
      const double x = input.data[i];
      input.data[i] = x + kStep;
      const double above = weighted_output(in);
      input.data[i] = x - kStep;
      const double below = weighted_output(in);
      input.data[i] = x;
      // The third derivative times kStep^2 / 6, and rounding of 1e-16 / kStep.
      EXPECT_NEAR(gradient.data[i], (above - below) / (2 * kStep), 1e-8);
    }
}

}  // namespace
}  // namespace mpt
