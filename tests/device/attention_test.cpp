// Attention of the CPU against naive FP64 code, forward and backward, with derived tolerances.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <omp.h>

#include "device/attention_problem.h"
#include "device/backends.h"
#include "device/cpu/cpu_kernels.h"
#include "device/naive_attention.h"
#include "support/amx_emulator.h"

namespace mpt {
namespace {

using test::Draws;
using test::HeadInputs;
using test::NaiveAttention;
using Problem = test::AttentionProblem;

// Covers each way to sum dot products of BF16 numbers; if the processor has no AMX, its instructions
// are emulated.
class CpuAttentionTest : public testing::TestWithParam<Bf16Dot> {
 protected:
  void SetUp() override {
    const auto missing = why_no_bf16_dot;
    if (GetParam() == Bf16Dot::kAmxBf16 && !missing(GetParam()).empty() &&
        missing(Bf16Dot::kAvx512Bf16).empty())
      emulator_.emplace();
    else if (const std::string problem = missing(GetParam()); !problem.empty())
      GTEST_SKIP() << problem;
    device_ = make_cpu_device(3, GetParam());
    allocator_ = device_->make_allocator();
    // P and dS are rounded to BF16 before they are multiplied.
    if (GetParam() != Bf16Dot::kFma) tested_.bf16_operand = test::unit_of(DType::kBF16);
  }
  void reserve(const AttentionShape& shape, DType storage) {
    device_->attention().reserve(*allocator_, shape, storage);
  }
  void run(const Problem& p) {
    reserve(p.shape, p.dtype);
    device_->attention().forward(p.forward());
    device_->attention().backward(p.backward());
  }

  test::AttentionUnderTest tested_{.run = [this](Problem& p) { run(p); }};
  std::optional<test::AmxEmulator> emulator_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Allocator> allocator_;
};

INSTANTIATE_TEST_SUITE_P(Products, CpuAttentionTest,
                         testing::Values(Bf16Dot::kFma, Bf16Dot::kAvx512Bf16, Bf16Dot::kAmxBf16),
                         [](const auto& test) { return std::string(name_of(test.param)); });

TEST_P(CpuAttentionTest, ForwardAndBackward) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t tokens : {1, 2, 63, 64, 65, 97, 130})
      for (const int64_t dim : {2, 8, 16, 24, 48, 64, 80}) {
        Problem p(
            {.batch = 2, .seq_len = tokens, .heads = 3, .key_value_heads = 3, .head_dim = dim},
            dtype);
        ASSERT_NO_FATAL_FAILURE(test::expect_forward_and_backward(tested_, p));
      }
}

TEST_P(CpuAttentionTest, GroupedQueries) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t tokens : {1, 63, 64, 130})
      for (const AttentionShape& shape : test::grouped_shapes(tokens, 24)) {
        Problem p(shape, dtype);
        ASSERT_NO_FATAL_FAILURE(test::expect_forward_and_backward(tested_, p));
      }
}

TEST_P(CpuAttentionTest, StaysWithinDocuments) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t tokens : {1, 64, 65, 200}) {
      test::expect_within_documents(
          tested_,
          {.batch = 2, .seq_len = tokens, .heads = 2, .key_value_heads = 2, .head_dim = 16}, dtype);
      for (const AttentionShape& shape : test::grouped_shapes(tokens, 24))
        test::expect_within_documents(tested_, shape, dtype);
    }
}

TEST_P(CpuAttentionTest, OneDocumentIsARow) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const AttentionShape& shape : test::grouped_shapes(130, 24))
      test::expect_one_document_is_a_row(tested_, shape, dtype);
}

// A document that begins at a tile boundary has the bits of a separate sequence, whatever precedes
// and follows it: the same tiles are added in the same order.
TEST_P(CpuAttentionTest, ADocumentAtATilesEdgeIsASequence) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t length : {64, 100, 128}) {
      const AttentionShape row{
          .batch = 1, .seq_len = 300, .heads = 2, .key_value_heads = 1, .head_dim = 24};
      AttentionShape document = row;
      document.seq_len = length;
      Problem packed(row, dtype), alone(document, dtype);
      packed.cut_at({20, 64, 64 + length, 260});
      for (int64_t t = 0; t < length; ++t) {
        for (int64_t c = 0; c < row.qkv_width(); ++c) alone.qkv.set(t, c, packed.qkv.at(64 + t, c));
        for (int64_t c = 0; c < row.query_width(); ++c)
          alone.d_out.set(t, c, packed.d_out.at(64 + t, c));
      }
      run(packed);
      run(alone);
      for (int64_t t = 0; t < length; ++t) {
        for (int64_t c = 0; c < row.query_width(); ++c)
          ASSERT_EQ(packed.out.bits(64 + t, c), alone.out.bits(t, c)) << t << "," << c;
        for (int64_t h = 0; h < 2; ++h)
          ASSERT_EQ(packed.log_sum_exp.bits(h, 64 + t), alone.log_sum_exp.bits(h, t)) << t;
        for (int64_t c = 0; c < row.qkv_width(); ++c)
          ASSERT_EQ(packed.d_qkv.bits(64 + t, c), alone.d_qkv.bits(t, c)) << t << "," << c;
      }
    }
}

TEST_P(CpuAttentionTest, BeginningsOfDocumentsAreChecked) {
  Problem p({.batch = 1, .seq_len = 5, .heads = 1, .key_value_heads = 1, .head_dim = 8},
            DType::kF32);
  reserve(p.shape, p.dtype);
  const auto expect_refused = [&](AttentionScope scope, std::vector<int32_t> beginnings) {
    p.shape.scope = scope;
    p.document_begin = std::move(beginnings);
    EXPECT_THROW(device_->attention().forward(p.forward()), LogicError);
    EXPECT_THROW(device_->attention().backward(p.backward()), LogicError);
  };
  expect_refused(AttentionScope::kDocument, {0, 0, 0, 0});
  expect_refused(AttentionScope::kDocument, {});
  expect_refused(AttentionScope::kRow, {0, 0, 0, 0, 0});
}

TEST_P(CpuAttentionTest, LargeScores) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) test::expect_large_scores(tested_, dtype);
}

TEST_P(CpuAttentionTest, OneDominantKey) {
  for (const float score : {1e4f, -1e4f}) {
    const Problem p = test::run_one_dominant_key(tested_, score);
    EXPECT_EQ(p.out.at(59, 3), score > 0 ? 7.0f : 1.0f);
    EXPECT_EQ(p.out.at(19, 3), 1.0f);
  }
}

TEST_P(CpuAttentionTest, IsCausal) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) test::expect_causal(tested_, dtype);
}

TEST_P(CpuAttentionTest, ThreadsDoNotMatter) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t key_value_heads : {3, 1}) {
      const AttentionShape shape{.batch = 2,
                                 .seq_len = 97,
                                 .heads = 3,
                                 .key_value_heads = key_value_heads,
                                 .head_dim = 24};
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

// Heads and sequences are computed separately: the bits of one do not depend on its neighbors.
TEST_P(CpuAttentionTest, HeadsAndSequencesAreIndependent) {
  Problem p({.batch = 2, .seq_len = 50, .heads = 2, .key_value_heads = 2, .head_dim = 8},
            DType::kF32);
  Problem alone({.batch = 1, .seq_len = 50, .heads = 1, .key_value_heads = 1, .head_dim = 8},
                DType::kF32);
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

// Each way has its own low bits on BF16 tensors; FP32 ones are multiplied unchanged.
TEST_P(CpuAttentionTest, ProductsAreThoseAskedFor) {
  const AttentionShape shape{
      .batch = 1, .seq_len = 200, .heads = 2, .key_value_heads = 1, .head_dim = 64};
  const auto fma = make_cpu_device(3);
  const auto allocator = fma->make_allocator();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Problem here(shape, dtype), there(shape, dtype);
    run(here);
    fma->attention().reserve(*allocator, shape, dtype);
    fma->attention().forward(there.forward());
    fma->attention().backward(there.backward());
    const bool alike = dtype == DType::kF32 || GetParam() == Bf16Dot::kFma;
    EXPECT_EQ(here.log_sum_exp == there.log_sum_exp, alike);
    EXPECT_EQ(here.d_qkv == there.d_qkv, alike);
  }
  if (emulator_) {
    EXPECT_GT(emulator_->products(), 0);
  }
}

TEST_P(CpuAttentionTest, NothingToDo) {
  for (const AttentionShape& shape : {AttentionShape{0, 5, 2, 2, 8}, AttentionShape{2, 5, 0, 0, 8},
                                      AttentionShape{2, 0, 2, 2, 8}}) {
    Problem p(shape, DType::kF32);
    run(p);
    test::expect_nothing_else_written(p);
  }
}

TEST_P(CpuAttentionTest, WithoutScratchIsALogicError) {
  const Problem p({.batch = 1, .seq_len = 70, .heads = 1, .key_value_heads = 1, .head_dim = 8},
                  DType::kF32);
  EXPECT_THROW(device_->attention().forward(p.forward()), LogicError);
  EXPECT_THROW(device_->attention().backward(p.backward()), LogicError);
  reserve({.batch = 1, .seq_len = 64, .heads = 1, .key_value_heads = 1, .head_dim = 8}, p.dtype);
  EXPECT_THROW(device_->attention().forward(p.forward()), LogicError);
  reserve(p.shape, p.dtype);
  EXPECT_NO_THROW(device_->attention().forward(p.forward()));
}

TEST_P(CpuAttentionTest, PlansWhatItAllocates) {
  const AttentionShape shape{
      .batch = 4, .seq_len = 130, .heads = 3, .key_value_heads = 3, .head_dim = 24};
  const CpuGemm gemm(3, GetParam());
  for (const DType storage : {DType::kF32, DType::kBF16}) {
    const auto device = make_cpu_device(3, GetParam());
    const auto allocator = device->make_allocator();
    device->attention().reserve(*allocator, shape, storage);
    PlanningAllocator planned;
    CpuAttention(3, gemm).reserve(planned, shape, storage);
    EXPECT_EQ(planned.use().of(kScratchMemory), allocator->use().of(kScratchMemory));
    EXPECT_GT(planned.use().total(), 0);
    // Memory grows with the sequence, not with its square, and not with batch or heads.
    PlanningAllocator longer, wider;
    CpuAttention(3, gemm).reserve(
        longer, {.batch = 4, .seq_len = 1300, .heads = 3, .key_value_heads = 3, .head_dim = 24},
        storage);
    CpuAttention(3, gemm).reserve(
        wider, {.batch = 40, .seq_len = 130, .heads = 30, .key_value_heads = 30, .head_dim = 24},
        storage);
    EXPECT_LT(longer.use().total(), 11 * planned.use().total());
    EXPECT_EQ(wider.use().total(), planned.use().total());
  }
}

// Tests the oracle itself: its gradients are the finite differences of its output.
double weighted_output(const HeadInputs& in) {
  const NaiveAttention naive({in.q.rows, in.q.cols}, in, {});
  double sum = 0;
  for (size_t i = 0; i < in.d_out.data.size(); ++i)
    sum += in.d_out.data[i] * naive.out.value.data[i];
  return sum;
}

TEST(NaiveAttention, DocumentsAreRowsOfTheirOwn) {
  HeadInputs in({7, 5}), alone({3, 5});
  Draws draws(43);
  for (test::Matrix64* m : {&in.q, &in.k, &in.v, &in.d_out})
    for (double& x : m->data) x = draws.bell(1);
  const auto part = [](const test::Matrix64& from, test::Matrix64& to) {
    std::copy_n(from.data.begin() + 2 * 5, 3 * 5, to.data.begin());
  };
  part(in.q, alone.q), part(in.k, alone.k), part(in.v, alone.v), part(in.d_out, alone.d_out);
  const std::vector<int32_t> begins{0, 0, 2, 2, 2, 5, 5};
  const NaiveAttention packed({7, 5}, in, {}, begins), one({3, 5}, alone, {});
  for (int64_t t = 0; t < 3; ++t)
    for (int64_t d = 0; d < 5; ++d) {
      EXPECT_EQ(packed.out.value(2 + t, d), one.out.value(t, d));
      EXPECT_EQ(packed.d_q.value(2 + t, d), one.d_q.value(t, d));
      EXPECT_EQ(packed.d_k.value(2 + t, d), one.d_k.value(t, d));
      EXPECT_EQ(packed.d_v.value(2 + t, d), one.d_v.value(t, d));
    }
}

TEST(NaiveAttention, GradientsAreFiniteDifferences) {
  HeadInputs in({7, 5});
  Draws draws(42);
  for (test::Matrix64* m : {&in.q, &in.k, &in.v, &in.d_out})
    for (double& x : m->data) x = draws.bell(1);
  const NaiveAttention naive({7, 5}, in, {});
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
