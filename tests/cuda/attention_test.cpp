// Attention of the GPU: batched GEMMs against naive FP64 code, and cuDNN, if available, against
// both.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/gpu.h"
#include "device/attention_problem.h"
#include "device/cuda/attention_workspace.h"
#include "device/cuda/cuda_attention.h"
#include "support/expect_error.h"

namespace mpt {
namespace {

using test::AttentionUnderTest;
using test::HostMatrix;
using Problem = test::AttentionProblem;

constexpr double kBf16Unit = 0x1p-8;

// Small, because the fake GPU pays for every page.
constexpr GemmAttentionScratch kScratch{.matrices = int64_t{1} << 20, .workspace = 4096};

// Returns the bytes of one pair's two [T, T] matrices, rows in whole accesses of 8 bf16.
int64_t bytes_of_pair(int64_t tokens) { return 2 * tokens * align_up(tokens, 8) * 4; }

class CudaAttentionTest : public test::GpuTest {
 protected:
  void SetUp() override {
    test::GpuTest::SetUp();
    if (!IsSkipped()) gpu_ = std::make_unique<test::Gpu>();
  }

  // Runs both passes on the GPU over the problem's tensors, which then hold the results.
  void run(Attention& attention, Problem& p) {
    test::Gpu memory;
    const auto copy = [&](const HostMatrix& m) { return memory.copy(m.view()); };
    const Tensor qkv = copy(p.qkv), out = copy(p.out), log_sum_exp = copy(p.log_sum_exp),
                 d_out = copy(p.d_out), d_qkv = copy(p.d_qkv);
    const Tensor documents = p.document_begin.empty() ? Tensor{} : memory.copy(p.documents());
    attention.forward({p.shape, qkv, out, log_sum_exp, documents});
    attention.backward({p.shape, qkv, out, log_sum_exp, d_out, d_qkv, documents});
    gpu_->fetch(qkv, p.qkv);
    gpu_->fetch(out, p.out);
    gpu_->fetch(log_sum_exp, p.log_sum_exp);
    gpu_->fetch(d_out, p.d_out);
    gpu_->fetch(d_qkv, p.d_qkv);
  }
  // Allocates separate scratch for every problem.
  void run_by_gemms(const GemmAttentionScratch& most, Problem& p) {
    test::GpuAllocator scratch(gpu_->stream());
    GemmAttention attention(gpu_->stream(), most);
    attention.reserve(scratch, p.shape, p.dtype);
    run(attention, p);
  }
  // P and dS are rounded with bf16 storage.
  AttentionUnderTest gemms(const GemmAttentionScratch& most = kScratch) {
    return {.run = [this, most](Problem& p) { run_by_gemms(most, p); }, .bf16_operand = kBf16Unit};
  }
  // cuDNN rounds P, dP and dS to bf16, like the GEMMs P and dS; and the contribution of each of
  // several query heads to dK and dV of the keys that they share.
  AttentionUnderTest cudnn(DeterministicAttention deterministic) {
    const std::shared_ptr<Attention> attention =
        make_cuda_attention(gpu_->stream(), CudaAttention::kCudnn, deterministic);
    return {.run =
                [this, attention](Problem& p) {
                  attention->reserve(gpu_->allocator(), p.shape, p.dtype);
                  run(*attention, p);
                },
            .bf16_operand = kBf16Unit,
            .bf16_d_p = kBf16Unit,
            .bf16_reader = kBf16Unit};
  }

  std::unique_ptr<test::Gpu> gpu_;
};

class GemmAttentionTest : public CudaAttentionTest {};

TEST_F(GemmAttentionTest, ForwardAndBackward) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t tokens : {1, 2, 31, 130})
      for (const int64_t dim : {8, 16, 24, 48, 64, 128}) {
        Problem p(
            {.batch = 2, .seq_len = tokens, .heads = 2, .key_value_heads = 2, .head_dim = dim},
            dtype, {.padding = 8});
        ASSERT_NO_FATAL_FAILURE(test::expect_forward_and_backward(gemms(), p));
      }
}

TEST_F(GemmAttentionTest, AnyHeadDimensionAndRowDistance) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t dim : {1, 2, 5, 20}) {
      Problem p({.batch = 2, .seq_len = 19, .heads = 3, .key_value_heads = 3, .head_dim = dim},
                dtype, {.padding = 3});
      ASSERT_NO_FATAL_FAILURE(test::expect_forward_and_backward(gemms(), p));
    }
}

TEST_F(GemmAttentionTest, GroupedQueries) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t tokens : {1, 31, 130})
      for (const AttentionShape& shape : test::grouped_shapes(tokens, 16)) {
        Problem p(shape, dtype, {.padding = 8});
        ASSERT_NO_FATAL_FAILURE(test::expect_forward_and_backward(gemms(), p));
      }
}

// Chunks of the readers of one key head, of several, and of several sequences.
TEST_F(GemmAttentionTest, ChunksOfGroupedQueriesDoNotMatter) {
  const AttentionShape shape{
      .batch = 5, .seq_len = 21, .heads = 6, .key_value_heads = 2, .head_dim = 8};
  const int64_t pair = bytes_of_pair(21) + align_up(21 * 8 * 4, 16);
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t pairs : {1, 3, 5, 6, 13, 100}) {
      SCOPED_TRACE(pairs);
      Problem p(shape, dtype);
      ASSERT_NO_FATAL_FAILURE(test::expect_forward_and_backward(
          gemms({.matrices = pairs * pair, .workspace = 4096}), p));
    }
}

TEST_F(GemmAttentionTest, StaysWithinDocuments) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t tokens : {1, 31, 200})
      test::expect_within_documents(
          gemms(),
          {.batch = 2, .seq_len = tokens, .heads = 2, .key_value_heads = 1, .head_dim = 16}, dtype);
}

// Rounds of a warp's lanes that begin before the document, and bands without any of its keys.
TEST_F(GemmAttentionTest, StaysWithinDocumentsBeyondABand) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Problem p({.batch = 1, .seq_len = 600, .heads = 1, .key_value_heads = 1, .head_dim = 8}, dtype,
              {.padding = 8});
    p.cut_at({1, 130, 257, 300, 511});
    ASSERT_NO_FATAL_FAILURE(test::expect_forward_and_backward(gemms(), p));
  }
}

TEST_F(GemmAttentionTest, OneDocumentIsARow) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    test::expect_one_document_is_a_row(
        gemms(), {.batch = 2, .seq_len = 130, .heads = 2, .key_value_heads = 2, .head_dim = 16},
        dtype);
}

// The documents of a chunk are those of its sequences.
TEST_F(GemmAttentionTest, ChunksOfDocumentsDoNotMatter) {
  const AttentionShape shape{
      .batch = 5, .seq_len = 21, .heads = 4, .key_value_heads = 4, .head_dim = 8};
  for (const int64_t pairs : {1, 3, 4, 8, 100}) {
    SCOPED_TRACE(pairs);
    Problem p(shape, DType::kF32);
    p.cut_at({3, 9, 10});
    ASSERT_NO_FATAL_FAILURE(test::expect_forward_and_backward(
        gemms({.matrices = pairs * bytes_of_pair(21), .workspace = 4096}), p));
  }
}

TEST_F(GemmAttentionTest, AroundTheEndsOfBands) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t tokens : {255, 256, 257, 521}) {
      Problem p({.batch = 1, .seq_len = tokens, .heads = 1, .key_value_heads = 1, .head_dim = 8},
                dtype);
      ASSERT_NO_FATAL_FAILURE(test::expect_forward_and_backward(gemms(), p));
    }
}

TEST_F(GemmAttentionTest, LargeScores) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) test::expect_large_scores(gemms(), dtype);
}

TEST_F(GemmAttentionTest, OneDominantKey) {
  EXPECT_EQ(test::run_one_dominant_key(gemms(), 1e4f).out.at(59, 3), 7.0f);
  const Problem p = test::run_one_dominant_key(gemms(), -1e4f);
  EXPECT_EQ(p.out.at(20, 3), p.out.at(19, 3));
}

TEST_F(GemmAttentionTest, IsCausal) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) test::expect_causal(gemms(), dtype);
}

// Chunks of some heads, of a sequence, of several sequences with and without a remainder.
TEST_F(GemmAttentionTest, ChunksDoNotMatter) {
  const AttentionShape shape{
      .batch = 5, .seq_len = 21, .heads = 4, .key_value_heads = 4, .head_dim = 8};
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t pairs : {1, 3, 4, 7, 8, 19, 20, 100}) {
      SCOPED_TRACE(pairs);
      Problem p(shape, dtype);
      ASSERT_NO_FATAL_FAILURE(test::expect_forward_and_backward(
          gemms({.matrices = pairs * bytes_of_pair(21), .workspace = 4096}), p));
    }
}

TEST_F(GemmAttentionTest, ScratchIsBounded) {
  const auto scratch = [](const AttentionShape& shape, int64_t matrix_bytes) {
    PlanningAllocator planned;
    GemmAttention(nullptr, {.matrices = matrix_bytes, .workspace = 0})
        .reserve(planned, shape, DType::kBF16);
    return planned.use().total();
  };
  constexpr int64_t kMost = int64_t{1} << 20;
  EXPECT_EQ(
      scratch({.batch = 2, .seq_len = 20, .heads = 3, .key_value_heads = 3, .head_dim = 8}, kMost),
      6 * bytes_of_pair(20));
  const int64_t many = scratch(
      {.batch = 1000, .seq_len = 20, .heads = 30, .key_value_heads = 30, .head_dim = 8}, kMost);
  EXPECT_LE(many, kMost);
  EXPECT_GT(many, kMost - bytes_of_pair(20));
  EXPECT_EQ(
      scratch({.batch = 1000, .seq_len = 1000, .heads = 30, .key_value_heads = 30, .head_dim = 8},
              kMost),
      bytes_of_pair(1000));
  EXPECT_EQ(
      scratch({.batch = 0, .seq_len = 1000, .heads = 30, .key_value_heads = 30, .head_dim = 8},
              kMost),
      0);
}

// The scratch and the log-sum-exp of the largest batch serve a smaller one; anything beyond is
// untouched.
TEST_F(GemmAttentionTest, FewerSequencesThanReserved) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const AttentionShape most{
        .batch = 4, .seq_len = 21, .heads = 3, .key_value_heads = 3, .head_dim = 8};
    GemmAttention attention(gpu_->stream(), {.matrices = 5 * bytes_of_pair(21), .workspace = 4096});
    attention.reserve(gpu_->allocator(), most, dtype);
    const AttentionUnderTest tested{.run = [&](Problem& p) { run(attention, p); },
                                    .bf16_operand = kBf16Unit};
    for (const int64_t batch : {4, 1, 3}) {
      Problem p({.batch = batch, .seq_len = 21, .heads = 3, .key_value_heads = 3, .head_dim = 8},
                dtype);
      p.log_sum_exp = HostMatrix(DType::kF32, {4 * 3, 21});
      p.log_sum_exp.fill([](int64_t, int64_t) { return 77.0f; });
      ASSERT_NO_FATAL_FAILURE(test::expect_forward_and_backward(tested, p));
      for (int64_t row = batch * 3; row < 12; ++row)
        for (int64_t t = 0; t < 21; ++t) ASSERT_EQ(p.log_sum_exp.at(row, t), 77.0f);
    }
  }
}

TEST_F(GemmAttentionTest, TheSameCallGivesTheSameBits) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const AttentionShape shape{
        .batch = 3, .seq_len = 97, .heads = 3, .key_value_heads = 3, .head_dim = 24};
    Problem one(shape, dtype), two(shape, dtype);
    gemms().run(one);
    gemms().run(two);
    EXPECT_EQ(one.out, two.out);
    EXPECT_EQ(one.log_sum_exp, two.log_sum_exp);
    EXPECT_EQ(one.d_qkv, two.d_qkv);
  }
}

#ifdef MPT_FAKE_CUDA
// In place, so the lanes of a warp must not overtake one another.
TEST_F(GemmAttentionTest, TheOrderOfThreadsDoesNotMatter) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const AttentionShape shape{
        .batch = 1, .seq_len = 300, .heads = 2, .key_value_heads = 2, .head_dim = 8};
    Problem one(shape, dtype), two(shape, dtype);
    gemms().run(one);
    fake_cuda::set_order(fake_cuda::Order::kBackward);
    gemms().run(two);
    EXPECT_EQ(one.out, two.out);
    EXPECT_EQ(one.log_sum_exp, two.log_sum_exp);
    EXPECT_EQ(one.d_qkv, two.d_qkv);
    fake_cuda::set_order(fake_cuda::Order::kForward);
  }
}

// Work that starts when the host waits for it finds all arguments of the calls.
TEST_F(GemmAttentionTest, RunsLate) {
  fake_cuda::set_execution(fake_cuda::Execution::kLate);
  Problem p({.batch = 2, .seq_len = 33, .heads = 2, .key_value_heads = 2, .head_dim = 16},
            DType::kBF16);
  test::GpuAllocator scratch(gpu_->stream());
  GemmAttention attention(gpu_->stream(), kScratch);
  attention.reserve(scratch, p.shape, p.dtype);
  const AttentionUnderTest tested{.run = [&](Problem& q) { run(attention, q); },
                                  .bf16_operand = kBf16Unit};
  ASSERT_NO_FATAL_FAILURE(test::expect_forward_and_backward(tested, p));
}
#endif

// A NaN in one pair stays there, and does not vanish.
TEST_F(GemmAttentionTest, NotANumberShows) {
  Problem p({.batch = 1, .seq_len = 40, .heads = 2, .key_value_heads = 2, .head_dim = 8},
            DType::kF32);
  p.qkv.set(30, 8 + 2, NAN);  // Q of head 1
  gemms().run(p);
  EXPECT_TRUE(std::isnan(p.log_sum_exp.at(1, 30)));
  EXPECT_TRUE(std::isnan(p.out.at(30, 8)));
  for (int64_t t = 0; t < 40; ++t) {
    EXPECT_FALSE(std::isnan(p.out.at(t, 0)));
    if (t != 30) {
      EXPECT_FALSE(std::isnan(p.out.at(t, 8))) << t;
    }
  }
}

TEST_F(GemmAttentionTest, NothingToDo) {
  GemmAttention attention(gpu_->stream(), kScratch);
  for (const AttentionShape& shape : {AttentionShape{0, 5, 2, 2, 8}, AttentionShape{2, 5, 0, 0, 8},
                                      AttentionShape{2, 0, 2, 2, 8}}) {
    const Problem p(shape, DType::kF32);
    attention.reserve(gpu_->allocator(), shape, DType::kF32);
    attention.forward(p.forward());
    attention.backward(p.backward());
    test::expect_nothing_else_written(p);
  }
}

TEST_F(GemmAttentionTest, WithoutScratchIsALogicError) {
  Problem p({.batch = 1, .seq_len = 50, .heads = 1, .key_value_heads = 1, .head_dim = 8},
            DType::kF32);
  GemmAttention attention(gpu_->stream(), kScratch);
  EXPECT_THROW(run(attention, p), LogicError);
  attention.reserve(gpu_->allocator(),
                    {.batch = 1, .seq_len = 48, .heads = 1, .key_value_heads = 1, .head_dim = 8},
                    DType::kF32);
  EXPECT_THROW(run(attention, p), LogicError);
  attention.reserve(gpu_->allocator(), p.shape, DType::kF32);
  EXPECT_NO_THROW(run(attention, p));
}

TEST_F(GemmAttentionTest, PlansWhatItAllocates) {
  const AttentionShape shape{
      .batch = 4, .seq_len = 130, .heads = 3, .key_value_heads = 3, .head_dim = 24};
  PlanningAllocator planned;
  GemmAttention(nullptr).reserve(planned, shape, DType::kF32);
  test::GpuAllocator allocated(gpu_->stream());
  GemmAttention(gpu_->stream()).reserve(allocated, shape, DType::kF32);
  EXPECT_EQ(planned.use().total(), allocated.use().total());
}

// --- choice of attention -------------------------------------------------------------------------

constexpr AttentionShape kUsual{
    .batch = 8, .seq_len = 256, .heads = 4, .key_value_heads = 4, .head_dim = 64};

TEST(CudaAttention, ABuildWithoutCudnnRefusesIt) {
  if (has_cudnn_attention()) GTEST_SKIP() << "this build has it";
  EXPECT_ERROR(make_cuda_attention(nullptr, CudaAttention::kCudnn),
               "cuDNN attention is not part of this build");
  EXPECT_NE(make_cuda_attention(nullptr), nullptr);
}

// Such a program runs without any cuDNN.
TEST(CudaAttention, ABuildWithoutCudnnDoesNotLoadIt) {
  if (has_cudnn_attention()) GTEST_SKIP() << "this build has it";
  std::ifstream maps("/proc/self/maps");
  ASSERT_TRUE(maps.good());
  for (std::string line; std::getline(maps, line);)
    EXPECT_EQ(line.find("libcudnn"), std::string::npos) << line;
}

TEST(CudaAttention, SaysWhichIsInUse) {
  const auto said = [](CudaAttention kind, DType storage, const AttentionShape& shape = kUsual) {
    return make_cuda_attention(nullptr, kind)->in_use(shape, storage);
  };
  EXPECT_EQ(said(CudaAttention::kGemms, DType::kBF16), "GEMMs (as configured)");
  if (!has_cudnn_attention()) {
    EXPECT_EQ(said(CudaAttention::kAuto, DType::kBF16),
              "GEMMs (this build has no cuDNN attention)");
    return;
  }
  EXPECT_TRUE(said(CudaAttention::kAuto, DType::kBF16).starts_with("cuDNN 9."));
  EXPECT_EQ(said(CudaAttention::kAuto, DType::kF32), "GEMMs (cuDNN: it supports bf16, not fp32)");
  EXPECT_EQ(said(CudaAttention::kAuto, DType::kBF16, {8, 256, 4, 4, 12}),
            "GEMMs (cuDNN: the head size must be a multiple of 8 and at most 128)");
  EXPECT_EQ(said(CudaAttention::kAuto, DType::kBF16, {8, 1, 4, 4, 64}),
            "GEMMs (cuDNN: the backward pass needs more than one token)");
}

// A run logs at its start the property given up for less workspace.
TEST(CudaAttention, SaysThatItIsNotDeterministic) {
  if (!has_cudnn_attention()) GTEST_SKIP() << "this build has no cuDNN";
  const auto said = [](DeterministicAttention deterministic) {
    return make_cuda_attention(nullptr, CudaAttention::kCudnn, deterministic)
        ->in_use(kUsual, DType::kBF16);
  };
  EXPECT_EQ(said(DeterministicAttention::kOn).find("deterministic"), std::string::npos);
  EXPECT_TRUE(said(DeterministicAttention::kOff)
                  .ends_with(", not deterministic: no two runs have the same bits"));
}

TEST(CudaAttention, PlansWithoutAGpu) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    PlanningAllocator planned;
    make_cuda_attention(nullptr)->reserve(planned, kUsual, dtype);
    EXPECT_GT(planned.use().total(), 0);
  }
}

TEST(CudaAttention, ThePlanHasTheBiasOfDocuments) {
  if (!has_cudnn_attention()) GTEST_SKIP() << "this build has no cuDNN";
  const auto planned = [](AttentionScope scope) {
    PlanningAllocator allocator;
    make_cuda_attention(nullptr, CudaAttention::kCudnn)
        ->reserve(allocator, {4, 1024, 16, 16, 64, scope}, DType::kBF16);
    return allocator.use().total();
  };
  EXPECT_EQ(planned(AttentionScope::kDocument),
            planned(AttentionScope::kRow) + int64_t{4} * 1024 * 1024 * 2);
}

// 350M with micro-batches of 4 rows: dP, or sums of dQ.
TEST(CudaAttention, ThePlanHasThePriceOfDeterminism) {
  if (!has_cudnn_attention()) GTEST_SKIP() << "this build has no cuDNN";
  const auto planned = [](DeterministicAttention deterministic, int64_t batch) {
    PlanningAllocator allocator;
    make_cuda_attention(nullptr, CudaAttention::kCudnn, deterministic)
        ->reserve(
            allocator,
            {.batch = batch, .seq_len = 1024, .heads = 16, .key_value_heads = 16, .head_dim = 64},
            DType::kBF16);
    return allocator.use().total();
  };
  EXPECT_EQ(planned(DeterministicAttention::kOn, 4), 134'480'128);
  EXPECT_EQ(planned(DeterministicAttention::kOff, 4), 17'039'616);
  EXPECT_LE(planned(DeterministicAttention::kOn, 1000), kAttentionWorkspaceBytes);
}

TEST_F(CudaAttentionTest, ByCudnn) {
  if (!has_cudnn_attention()) GTEST_SKIP() << "this build has no cuDNN";
  const AttentionUnderTest tested = cudnn(DeterministicAttention::kOn);
  for (const int64_t tokens : {128, 256, 1024})
    for (const int64_t dim : {64, 128}) {
      Problem p({.batch = 3, .seq_len = tokens, .heads = 2, .key_value_heads = 2, .head_dim = dim},
                DType::kBF16, {.padding = 0});
      Problem again = p;
      ASSERT_NO_FATAL_FAILURE(test::expect_forward_and_backward(tested, p));
      tested.run(again);
      EXPECT_EQ(p.out, again.out);
      EXPECT_EQ(p.log_sum_exp, again.log_sum_exp);
      EXPECT_EQ(p.d_qkv, again.d_qkv);
    }
}

TEST_F(CudaAttentionTest, ByCudnnWithinDocuments) {
  if (!has_cudnn_attention()) GTEST_SKIP() << "this build has no cuDNN";
  const AttentionUnderTest tested = cudnn(DeterministicAttention::kOn);
  for (const int64_t tokens : {130, 256, 600})
    for (const int64_t dim : {64, 128}) {
      Problem p({.batch = 3, .seq_len = tokens, .heads = 4, .key_value_heads = 2, .head_dim = dim},
                DType::kBF16, {.padding = 0});
      p.cut_at({1, 100, 257, 300, 511});
      ASSERT_NO_FATAL_FAILURE(test::expect_forward_and_backward(tested, p));
    }
}

// For a half-empty last tile of keys, and a query that sees only keys with scores far below 0:
// e^-lse overflows in the empty half (pytorch issue 196678).
TEST_F(CudaAttentionTest, ByCudnnOfUnlikelyKeys) {
  if (!has_cudnn_attention()) GTEST_SKIP() << "this build has no cuDNN";
  const AttentionUnderTest tested = cudnn(DeterministicAttention::kOn);
  for (const int64_t tokens : {192, 320}) {
    Problem p({.batch = 3, .seq_len = tokens, .heads = 4, .key_value_heads = 2, .head_dim = 64},
              DType::kBF16, {.spread = 20, .padding = 0});
    p.cut_at({1, 2, 64, 100, 190});
    tested.run(p);
    float least = 0;
    for (int64_t r = 0; r < p.log_sum_exp.view().rows; ++r)
      for (int64_t t = 0; t < tokens; ++t) least = std::min(least, p.log_sum_exp.at(r, t));
    EXPECT_LT(least, -100);
    for (int64_t r = 0; r < p.d_qkv.view().rows; ++r)
      for (int64_t c = 0; c < p.d_qkv.view().cols; ++c)
        ASSERT_TRUE(std::isfinite(p.d_qkv.at(r, c))) << r << "," << c;
  }
}

TEST_F(CudaAttentionTest, ByCudnnInAnyOrder) {
  if (!has_cudnn_attention()) GTEST_SKIP() << "this build has no cuDNN";
  const AttentionUnderTest tested = cudnn(DeterministicAttention::kOff);
  for (const int64_t dim : {64, 128}) {
    Problem p({.batch = 3, .seq_len = 256, .heads = 2, .key_value_heads = 2, .head_dim = dim},
              DType::kBF16, {.padding = 0});
    ASSERT_NO_FATAL_FAILURE(test::expect_forward_and_backward(tested, p));
  }
}

TEST_F(CudaAttentionTest, ByProductsWhereCudnnRefuses) {
  const auto attention = make_cuda_attention(gpu_->stream());
  const AttentionUnderTest tested{.run =
                                      [&](Problem& p) {
                                        attention->reserve(gpu_->allocator(), p.shape, p.dtype);
                                        run(*attention, p);
                                      },
                                  .bf16_operand = kBf16Unit};
  Problem odd({.batch = 2, .seq_len = 33, .heads = 2, .key_value_heads = 2, .head_dim = 12},
              DType::kBF16);
  ASSERT_NO_FATAL_FAILURE(test::expect_forward_and_backward(tested, odd));
  Problem single({.batch = 2, .seq_len = 33, .heads = 2, .key_value_heads = 2, .head_dim = 16},
                 DType::kF32);
  ASSERT_NO_FATAL_FAILURE(test::expect_forward_and_backward(tested, single));
}

}  // namespace
}  // namespace mpt
