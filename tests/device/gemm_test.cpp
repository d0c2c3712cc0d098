// GEMMs of the CPU against FP64: every transpose, type and size class, accumulation, strided
// operands.
#include "device/gemm.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <omp.h>

#include "device/backends.h"
#include "device/cpu/cpu_kernels.h"
#include "device/cpu/gemm_kernel.h"
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
  void expect_gemm(const GemmProblem& p) { test::expect_gemm(*device_, *allocator_, p); }

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
                expect_gemm({.m = 17,
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
              expect_gemm({.m = m,
                           .n = n,
                           .k = k,
                           .transpose_a = ta,
                           .transpose_b = tb,
                           .accumulate = Accumulate::kYes,
                           .types = {type, type, type}});
}

TEST_F(CpuGemmTest, LargeEnoughForSeveralBlocks) {
  for (const DType type : kTypes)
    expect_gemm({.m = 100,
                 .n = 530,
                 .k = 700,
                 .transpose_b = Transpose::kYes,
                 .types = {type, type, type}});
}

// An empty sum is 0, or the previous D.
TEST_F(CpuGemmTest, WithoutTerms) {
  for (const Transpose ta : kTransposes)
    for (const Transpose tb : kTransposes)
      for (const Accumulate accumulate : kAccumulates)
        for (const DType type : kTypes)
          expect_gemm({.m = 3,
                       .n = 5,
                       .k = 0,
                       .transpose_a = ta,
                       .transpose_b = tb,
                       .accumulate = accumulate,
                       .types = {type, type, type}});
}

TEST_F(CpuGemmTest, WithoutResult) {
  for (const DType type : kTypes) {
    expect_gemm({.m = 0, .n = 5, .k = 3, .types = {type, type, type}});
    expect_gemm({.m = 5, .n = 0, .k = 3, .types = {type, type, type}});
  }
}

// Without accumulation the previous D does not matter, not even a NaN.
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

// Two accumulating calls equal one over the sum, including wide results.
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

// A bf16 result is rounded once from fp32, not accumulated in bf16: 256 + 1 + ... would stay at
// 256.
TEST_F(CpuGemmTest, Bf16ResultsAreRoundedOnce) {
  const GemmProblem p{
      .m = 1, .n = 1, .k = 257, .types = {DType::kBF16, DType::kBF16, DType::kBF16}};
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

// A reservation for fewer rows, columns or terms is not enough for one whose sums must be kept.
TEST_F(CpuGemmTest, TooLittleScratchIsALogicError) {
  const auto problem = [](int64_t rows) {
    return GemmProblem{
        .m = rows, .n = 40, .k = 300, .types = {DType::kF32, DType::kF32, DType::kBF16}};
  };
  const GemmOperands small(problem(8)), large(problem(800));
  run(small.call(problem(8)));
  EXPECT_THROW(device_->gemm().run(large.call(problem(800))), LogicError);
}

// One reservation for several calls suffices for each, and is planned as it is allocated.
TEST_F(CpuGemmTest, OneReservationForSeveralCalls) {
  std::vector<GemmProblem> problems;
  for (const int64_t size : {3, 40, 17})
    problems.push_back({.m = size,
                        .n = 50 - size,
                        .k = size + 1,
                        .types = {DType::kBF16, DType::kBF16, DType::kBF16}});
  std::vector<GemmOperands> operands;
  std::vector<GemmCall> calls;
  for (const GemmProblem& p : problems) operands.emplace_back(p);
  for (size_t i = 0; i < problems.size(); ++i) calls.push_back(operands[i].call(problems[i]));
  PlanningAllocator planned;
  device_->gemm().reserve(planned, calls);
  device_->gemm().reserve(*allocator_, calls);
  EXPECT_EQ(planned.use().of(kScratchMemory), allocator_->use().of(kScratchMemory));
  EXPECT_EQ(planned.use().total(), allocator_->use().total());
  for (const GemmCall& call : calls) EXPECT_NO_THROW(device_->gemm().run(call));
}

TEST_F(CpuGemmTest, SeveralThreads) {
  device_ = make_cpu_device(2);
  for (const DType type : kTypes)
    expect_gemm(
        {.m = 70, .n = 130, .k = 90, .accumulate = Accumulate::kYes, .types = {type, type, type}});
}

// D as defined by cpu_kernels.h: parts of equal length, each a chain of fused multiply-adds.
float sum_in_order(const GemmProblem& p, const GemmOperands& x, float scale_inv, int64_t row,
                   int64_t col) {
  constexpr int64_t kLongest = 256;
  const int64_t parts = std::max<int64_t>(1, (p.k + kLongest - 1) / kLongest);
  float d = p.accumulate == Accumulate::kYes ? float(x.d.at(row, col)) : 0.0f;
  for (int64_t part = 0; part < parts; ++part) {
    float sum = 0;
    for (int64_t i = p.k * part / parts; i < p.k * (part + 1) / parts; ++i) {
      const auto a = float(p.transpose_a == Transpose::kNo ? x.a.at(row, i) : x.a.at(i, row)),
                 b = float(p.transpose_b == Transpose::kNo ? x.b.at(i, col) : x.b.at(col, i));
      sum = multiply_add(a, b, sum);
    }
    d = part == 0 && p.accumulate == Accumulate::kNo ? scale_inv * sum
                                                     : multiply_add(scale_inv, sum, d);
  }
  return d;
}

// Sizes around those of the kernel's blocks and panels, and of a packed part; threads change no
// bits.
TEST_F(CpuGemmTest, SumsHaveTheBitsOfTheirDefinition) {
  struct Size {
    int64_t m, n, k;
  };
  for (const Size size : {Size{1, 1, 1}, Size{13, 31, 255}, Size{14, 32, 256}, Size{15, 33, 257},
                          Size{75, 49, 600}, Size{29, 106, 777}, Size{114, 20, 9},
                          Size{6, 1030, 20}, Size{230, 70, 513}, Size{19, 397, 31}})
    for (const Transpose ta : kTransposes)
      for (const Transpose tb : kTransposes)
        for (const Accumulate accumulate : kAccumulates)
          for (const DType d : kTypes) {
            const GemmProblem p{.m = size.m,
                                .n = size.n,
                                .k = size.k,
                                .transpose_a = ta,
                                .transpose_b = tb,
                                .accumulate = accumulate,
                                .types = {DType::kF32, DType::kBF16, d},
                                .padding = 3};
            const GemmOperands x(p);
            HostMatrix want = x.d;
            // FP8 operands have one; some of the sizes do without.
            const float scale_inv = size.n % 2 == 0 ? 0.3f : 1.0f;
            want.fill(
                [&](int64_t row, int64_t col) { return sum_in_order(p, x, scale_inv, row, col); });
            for (const int threads : {1, 2, 3, 4, 6}) {
              SCOPED_TRACE(fmt::format("{} x {} x {}, transposes {}{}, into {}, {} threads", p.m,
                                       p.n, p.k, int(ta), int(tb), name_of(d), threads));
              device_ = make_cpu_device(threads);
              HostMatrix result = x.d;
              GemmCall call = GemmOperands::call_of(p, x.a, x.b, result);
              call.scale_inv_b = &scale_inv;
              run(call);
              ASSERT_TRUE(result == want);
            }
          }
}

TEST_F(CpuGemmTest, InstructionsAreNamed) {
  EXPECT_EQ(device_->libraries(), cpu_gemm_description());
  EXPECT_NE(cpu_gemm_description().find(" x "), std::string::npos);
}

}  // namespace
}  // namespace mpt
