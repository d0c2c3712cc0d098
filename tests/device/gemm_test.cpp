// Matrix products of the CPU against FP64: every transpose, type and size class, accumulation, strided
// operands.
#include "device/gemm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <omp.h>

#include "core/process_memory.h"
#include "device/cpu/cblas.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/cpu_gemm.h"
#include "device/gemm_problem.h"

namespace mpt {
namespace {

using test::GemmOperands;
using test::GemmProblem;
using test::HostMatrix;

class CpuGemmTest : public testing::Test {
 protected:
  void run(const GemmCall& call) {
    device_->gemm().reserve(*allocator_, std::array{call});
    device_->gemm().run(call);
  }
  void expect_product(const GemmProblem& p) { test::expect_product(*device_, *allocator_, p); }

  std::unique_ptr<Device> device_ = make_cpu_device(1);
  std::unique_ptr<Allocator> allocator_ = device_->make_allocator();
};

constexpr Transpose kTransposes[] = {Transpose::kNo, Transpose::kYes};
constexpr Accumulate kAccumulates[] = {Accumulate::kNo, Accumulate::kYes};
constexpr DType kTypes[] = {DType::kF32, DType::kBF16};

TEST_F(CpuGemmTest, EveryTransposeTypeAndAccumulation) {
  for (const Transpose ta : kTransposes)
    for (const Transpose tb : kTransposes)
      for (const Accumulate accumulate : kAccumulates)
        for (const DType a : kTypes)
          for (const DType b : kTypes)
            for (const DType d : kTypes)
              for (const int64_t padding : {0, 5})
                expect_product({.m = 17,
                                .n = 23,
                                .k = 37,
                                .transpose_a = ta,
                                .transpose_b = tb,
                                .accumulate = accumulate,
                                .types = {a, b, d},
                                .padding = padding});
}

TEST_F(CpuGemmTest, SizesOfOneAndOddSizes) {
  for (const int64_t m : {1, 5, 64})
    for (const int64_t n : {1, 7, 33})
      for (const int64_t k : {1, 3, 129})
        for (const Transpose ta : kTransposes)
          for (const Transpose tb : kTransposes)
            for (const DType type : kTypes)
              expect_product({.m = m,
                              .n = n,
                              .k = k,
                              .transpose_a = ta,
                              .transpose_b = tb,
                              .accumulate = Accumulate::kYes,
                              .types = {type, type, type}});
}

TEST_F(CpuGemmTest, LargeEnoughForSeveralBlocks) {
  for (const DType type : kTypes)
    expect_product(
        {.m = 100, .n = 530, .k = 700, .transpose_b = Transpose::kYes, .types = {type, type, type}});
}

// An empty sum is 0, or what D held.
TEST_F(CpuGemmTest, WithoutTerms) {
  for (const Transpose ta : kTransposes)
    for (const Transpose tb : kTransposes)
      for (const Accumulate accumulate : kAccumulates)
        for (const DType type : kTypes)
          expect_product({.m = 3,
                          .n = 5,
                          .k = 0,
                          .transpose_a = ta,
                          .transpose_b = tb,
                          .accumulate = accumulate,
                          .types = {type, type, type}});
}

TEST_F(CpuGemmTest, WithoutResult) {
  for (const DType type : kTypes) {
    expect_product({.m = 0, .n = 5, .k = 3, .types = {type, type, type}});
    expect_product({.m = 5, .n = 0, .k = 3, .types = {type, type, type}});
  }
}

// Without accumulation what D held does not matter, not even a NaN.
TEST_F(CpuGemmTest, OverwritesWhatWasThere) {
  for (const DType type : kTypes) {
    const GemmProblem p{.m = 9, .n = 11, .k = 13, .types = {type, type, type}};
    GemmOperands clean(p), dirty(p);
    dirty.d.fill([](int64_t, int64_t) { return NAN; });
    run(clean.call(p));
    run(dirty.call(p));
    EXPECT_EQ(dirty.d, clean.d);
  }
}

// Two accumulating calls equal one over the sum, wide results included.
TEST_F(CpuGemmTest, AccumulatingTwiceIsTheSum) {
  GemmProblem p{.m = 2, .n = 3000, .k = 8, .accumulate = Accumulate::kYes};
  GemmOperands x(p);
  x.d.fill([](int64_t, int64_t) { return 0.0f; });
  // Small integers: every order of summation is exact.
  x.a.fill([](int64_t r, int64_t c) { return float((r * 5 + c * 3) % 7 - 3); });
  x.b.fill([](int64_t r, int64_t c) { return float((r * 11 + c) % 9 - 4); });
  run(x.call(p));
  const HostMatrix once = x.d;
  run(x.call(p));
  for (int64_t r = 0; r < p.m; ++r)
    for (int64_t c = 0; c < p.n; ++c) ASSERT_EQ(x.d.at(r, c), 2 * once.at(r, c));
  p.accumulate = Accumulate::kNo;
  run(x.call(p));
  EXPECT_EQ(x.d, once);
}

// A bf16 result is rounded once from fp32, not accumulated in bf16: 256 + 1 + ... would stay at 256.
TEST_F(CpuGemmTest, Bf16ResultsAreRoundedOnce) {
  const GemmProblem p{.m = 1, .n = 1, .k = 257, .types = {DType::kBF16, DType::kBF16, DType::kBF16}};
  GemmOperands x(p);
  x.a.fill([](int64_t, int64_t c) { return c == 0 ? 256.0f : 1.0f; });
  x.b.fill([](int64_t, int64_t) { return 1.0f; });
  run(x.call(p));
  EXPECT_EQ(x.d.at(0, 0), 512.0f);
}

TEST_F(CpuGemmTest, WrongShapesAreLogicErrors) {
  const HostMatrix a(DType::kF32, {4, 5}), b(DType::kF32, {5, 6}), d(DType::kF32, {4, 6});
  const HostMatrix wrong_rows(DType::kF32, {3, 6}), wrong_cols(DType::kF32, {4, 7}),
      square(DType::kF32, {4, 4});
  EXPECT_NO_THROW(run({.a = a, .b = b, .d = d}));
  EXPECT_THROW(run({.a = a, .b = b, .d = wrong_rows}), LogicError);
  EXPECT_THROW(run({.a = a, .b = b, .d = wrong_cols}), LogicError);
  EXPECT_THROW(run({.a = a, .b = square, .d = d}), LogicError);
  EXPECT_THROW(run({.a = a, .b = b, .d = d, .transpose_a = Transpose::kYes}), LogicError);
  EXPECT_THROW(run({.a = a, .b = b, .d = d, .transpose_b = Transpose::kYes}), LogicError);
}

TEST_F(CpuGemmTest, WrongTypesAreLogicErrors) {
  const HostMatrix a(DType::kF32, {4, 5}), b(DType::kF32, {5, 6}), d(DType::kF32, {4, 6});
  const auto as = [](const HostMatrix& x, DType dtype) {
    Tensor t = x;
    t.dtype = dtype;
    return t;
  };
  EXPECT_THROW(run({.a = as(a, DType::kI32), .b = b, .d = d}), LogicError);
  EXPECT_THROW(run({.a = a, .b = as(b, DType::kI32), .d = d}), LogicError);
  EXPECT_THROW(run({.a = a, .b = b, .d = as(d, DType::kI32)}), LogicError);
}

TEST_F(CpuGemmTest, WithoutScratchIsALogicError) {
  const GemmProblem p{.m = 4, .n = 5, .k = 6, .types = {DType::kBF16, DType::kF32, DType::kF32}};
  const GemmProblem q{.m = 4, .n = 5, .k = 6, .types = {DType::kF32, DType::kF32, DType::kBF16}};
  const GemmOperands x(p), y(q);
  EXPECT_THROW(device_->gemm().run(x.call(p)), LogicError);
  EXPECT_THROW(device_->gemm().run(y.call(q)), LogicError);
}

// One reservation for several calls suffices for each, and is planned as it is taken.
TEST_F(CpuGemmTest, OneReservationForSeveralCalls) {
  std::vector<GemmProblem> problems;
  for (const int64_t size : {3, 40, 17})
    problems.push_back(
        {.m = size, .n = 50 - size, .k = size + 1, .types = {DType::kBF16, DType::kBF16, DType::kBF16}});
  std::vector<GemmOperands> operands;
  std::vector<GemmCall> calls;
  for (const GemmProblem& p : problems) operands.emplace_back(p);
  for (size_t i = 0; i < problems.size(); ++i) calls.push_back(operands[i].call(problems[i]));
  PlanningAllocator planned;
  CpuGemm(2).reserve(planned, calls);
  device_->gemm().reserve(*allocator_, calls);
  EXPECT_EQ(planned.use().of(Purpose::kScratch), allocator_->use().of(Purpose::kScratch));
  EXPECT_EQ(planned.use().total(), allocator_->use().total());
  for (const GemmCall& call : calls) EXPECT_NO_THROW(device_->gemm().run(call));
}

TEST_F(CpuGemmTest, FP32NeedsNoScratch) {
  const GemmProblem p{.m = 4, .n = 5, .k = 6};
  const GemmOperands x(p);
  run(x.call(p));
  EXPECT_EQ(allocator_->use().total(), 0);
}

TEST_F(CpuGemmTest, SeveralThreads) {
  device_ = make_cpu_device(2);
  for (const DType type : kTypes)
    expect_product({.m = 70, .n = 130, .k = 90, .accumulate = Accumulate::kYes, .types = {type, type, type}});
}

// Sums of one part and of several, columns and rows that no kernel's block divides.
TEST_F(CpuGemmTest, ThreadsChangeNoBits) {
  if (!cblas_ignores_threads()) GTEST_SKIP() << device_->libraries();
  for (const Transpose ta : kTransposes)
    for (const Transpose tb : kTransposes)
      for (const int64_t k : {0, 31, 384, 385, 464, 688, 1071})
        for (const auto& [m, n] : {std::pair<int64_t, int64_t>{75, 49}, {160, 272}, {19, 397}}) {
          const GemmProblem p{
              .m = m, .n = n, .k = k, .transpose_a = ta, .transpose_b = tb, .accumulate = Accumulate::kYes};
          const GemmOperands x(p);
          std::vector<HostMatrix> results;
          for (const int threads : {1, 2, 3}) {
            device_ = make_cpu_device(threads);
            results.push_back(x.d);
            run(GemmOperands::call_of(p, x.a, x.b, results.back()));
          }
          SCOPED_TRACE(fmt::format("{} x {} x {}", m, n, k));
          EXPECT_TRUE(results[1] == results[0]);
          EXPECT_TRUE(results[2] == results[0]);
        }
}

// Of the planned calls the one that needs most, and what a product then really takes: 47 MiB here with
// OpenBLAS.
TEST_F(CpuGemmTest, WhatTheLibraryTakesIsPlanned) {
  constexpr int64_t kM = 32000, kN = 64, kK = 384, kMiB = 1 << 20;
  device_ = make_cpu_device(2);
  std::vector<float> a(kM * kK, 1.0f), b(kN * kK, 1.0f), d(kM * kN, 1.0f);
  const auto tensor = [](std::vector<float>& x, int64_t rows, int64_t cols) {
    return Tensor{reinterpret_cast<std::byte*>(x.data()), DType::kF32, rows, cols, cols};
  };
  const GemmCall call{
      .a = tensor(a, kM, kK), .b = tensor(b, kN, kK), .d = tensor(d, kM, kN), .transpose_b = Transpose::kYes};
  GemmCall small = call;
  small.a.rows = small.d.rows = 64;
  PlanningAllocator planned;
  device_->gemm().reserve(planned, std::vector{small, call, small});
  EXPECT_EQ(planned.use().of_libraries(), cblas_bytes(kM, kK));
  EXPECT_EQ(planned.use().total(), 0);
  if (planned.use().of_libraries() == 0) GTEST_SKIP() << "not known of " << device_->libraries();
  device_->gemm().run(small);  // what it takes for any call
  const int64_t before = resident_bytes();
  device_->gemm().run(call);
  EXPECT_LE(resident_bytes() - before, cblas_bytes(kM, kK) + 2 * kMiB);
}

TEST_F(CpuGemmTest, LibraryIsNamed) {
  EXPECT_NE(device_->libraries().find(cblas_description()), std::string::npos);
  EXPECT_EQ(device_->libraries() == cblas_description(), cblas_is_optimised() && cblas_ignores_threads());
}

}  // namespace
}  // namespace mpt
