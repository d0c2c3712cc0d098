// GEMMs on a GPU against FP64: every transpose, type, accumulation, stride and alignment, and the
// errors for unsupported ones.
#include "device/cuda/cuda_gemm.h"

#include <array>
#include <cmath>

#include "cuda/device_fixture.h"
#include "cuda/tensor_core_error.h"
#include "device/cuda/cuda_handles.h"
#include "device/fp8_problem.h"
#include "device/gemm_problem.h"
#include "support/expect_error.h"

namespace mpt {
namespace {

using test::DeviceMatrix;
using test::Fp8Problem;
using test::GemmProblem;
using test::HostMatrix;

class CudaGemmTest : public test::CudaDeviceTest {
 protected:
  void run(const GemmCall& call) {
    device_->gemm().reserve(*allocator_, std::array{call});
    device_->gemm().run(call);
  }
  void expect_gemm(const GemmProblem& p) { test::expect_gemm(*device_, *allocator_, p); }
  DeviceMatrix there(const HostMatrix& x) { return {*device_, *allocator_, x}; }
  Tensor tensor(DType dtype, int64_t rows, int64_t cols) {
    return allocator_->tensor({"data"}, dtype, rows, cols);
  }
};

constexpr Transpose kTransposes[] = {Transpose::kNo, Transpose::kYes};
constexpr Accumulate kAccumulates[] = {Accumulate::kNo, Accumulate::kYes};
constexpr DType kF = DType::kF32, kB = DType::kBF16;
// A, B and D.
constexpr std::array<DType, 3> kTypes[] = {{kF, kF, kF}, {kB, kB, kB}, {kB, kB, kF}};

TEST_F(CudaGemmTest, EveryTransposeTypeAndAccumulation) {
  for (const Transpose ta : kTransposes)
    for (const Transpose tb : kTransposes)
      for (const Accumulate accumulate : kAccumulates)
        for (const auto& types : kTypes)
          for (const int64_t padding : {0, 5, 8})
            expect_gemm({.m = 17,
                         .n = 23,
                         .k = 37,
                         .transpose_a = ta,
                         .transpose_b = tb,
                         .accumulate = accumulate,
                         .types = types,
                         .padding = padding});
}

TEST_F(CudaGemmTest, SizesOfOneAndOddSizes) {
  for (const int64_t m : {1, 5, 64})
    for (const int64_t n : {1, 7, 33})
      for (const int64_t k : {1, 3, 129})
        for (const Transpose ta : kTransposes)
          for (const Transpose tb : kTransposes)
            for (const auto& types : kTypes)
              expect_gemm(
                  {.m = m, .n = n, .k = k, .transpose_a = ta, .transpose_b = tb, .types = types});
}

TEST_F(CudaGemmTest, LargeEnoughForSeveralBlocks) {
  for (const auto& types : kTypes)
    expect_gemm({.m = 100, .n = 530, .k = 700, .transpose_b = Transpose::kYes, .types = types});
}

TEST_F(CudaGemmTest, Tf32OperandsAreRounded) {
  for (const Transpose ta : kTransposes)
    for (const Transpose tb : kTransposes)
      expect_gemm({.m = 48,
                   .n = 40,
                   .k = 72,
                   .transpose_a = ta,
                   .transpose_b = tb,
                   .accumulate = Accumulate::kYes,
                   .multiply = Multiply::kTf32});
}

// An empty sum is 0, or the previous D.
TEST_F(CudaGemmTest, WithoutTerms) {
  for (const Transpose ta : kTransposes)
    for (const Transpose tb : kTransposes)
      for (const Accumulate accumulate : kAccumulates)
        for (const auto& types : kTypes)
          for (const int64_t padding : {0, 3})
            expect_gemm({.m = 3,
                         .n = 5,
                         .k = 0,
                         .transpose_a = ta,
                         .transpose_b = tb,
                         .accumulate = accumulate,
                         .types = types,
                         .padding = padding});
}

TEST_F(CudaGemmTest, WithoutResult) {
  for (const auto& types : kTypes) {
    expect_gemm({.m = 0, .n = 5, .k = 3, .types = types});
    expect_gemm({.m = 5, .n = 0, .k = 3, .types = types});
  }
}

// Operands at addresses that are multiples only of their elements' size.
TEST_F(CudaGemmTest, UnalignedOperands) {
  for (const auto& types : kTypes) {
    const GemmProblem p{.m = 8, .n = 16, .k = 24, .types = types};
    const test::GemmOperands before(p);
    std::array<Tensor, 3> x{before.a, before.b, before.d};
    for (Tensor& t : x) {
      const std::byte* const host = t.data;
      t.data = allocator_->bytes({"data"}, t.bytes() + 16) + size_of(t.dtype);
      device_->upload(host, t);
    }
    run({.a = x[0], .b = x[1], .d = x[2]});
    HostMatrix after = before.d;
    device_->download(x[2], after.view().data);
    for (int64_t row = 0; row < p.m; ++row)
      for (int64_t col = 0; col < p.n; ++col) {
        const test::ExactSum exact = test::exact_element(p, before, row, col);
        ASSERT_TRUE(test::is_rounded(after.at(row, col), exact.value, test::error_bound(p, exact),
                                     types[2]));
      }
  }
}

// Without accumulation the previous D does not matter, not even a NaN.
TEST_F(CudaGemmTest, OverwritesWhatWasThere) {
  for (const auto& types : kTypes) {
    const GemmProblem p{.m = 9, .n = 11, .k = 13, .types = types};
    test::GemmOperands x(p);
    const DeviceMatrix a = there(x.a), b = there(x.b), clean = there(x.d);
    x.d.fill([](int64_t, int64_t) { return NAN; });
    const DeviceMatrix dirty = there(x.d);
    run({.a = a, .b = b, .d = clean});
    run({.a = a, .b = b, .d = dirty});
    EXPECT_EQ(dirty.fetched(), clean.fetched());
  }
}

// Two accumulating calls equal one over the sum, including wide results.
TEST_F(CudaGemmTest, AccumulatingTwiceIsTheSum) {
  const GemmProblem p{.m = 2, .n = 3000, .k = 8, .accumulate = Accumulate::kYes};
  test::GemmOperands x(p);
  x.d.fill([](int64_t, int64_t) { return 0.0f; });
  // Small integers: every order of summation is exact.
  x.a.fill([](int64_t r, int64_t c) { return float((r * 5 + c * 3) % 7 - 3); });
  x.b.fill([](int64_t r, int64_t c) { return float((r * 11 + c) % 9 - 4); });
  const DeviceMatrix a = there(x.a), b = there(x.b), d = there(x.d);
  run({.a = a, .b = b, .d = d, .accumulate = Accumulate::kYes});
  const HostMatrix once = d.fetched();
  run({.a = a, .b = b, .d = d, .accumulate = Accumulate::kYes});
  const HostMatrix twice = d.fetched();
  bool any = false;
  for (int64_t r = 0; r < p.m; ++r)
    for (int64_t c = 0; c < p.n; ++c) {
      ASSERT_EQ(twice.at(r, c), 2 * once.at(r, c));
      any = any || once.at(r, c) != 0;
    }
  EXPECT_TRUE(any);
}

// A bf16 result is rounded once from fp32, not accumulated in bf16: 256 + 1 + ... would stay at
// 256.
TEST_F(CudaGemmTest, Bf16ResultsAreRoundedOnce) {
  HostMatrix a(kB, {1, 257}), b(kB, {257, 1});
  a.fill([](int64_t, int64_t c) { return c == 0 ? 256.0f : 1.0f; });
  b.fill([](int64_t, int64_t) { return 1.0f; });
  const DeviceMatrix d = there(HostMatrix(kB, {1, 1}));
  run({.a = there(a), .b = there(b), .d = d});
  EXPECT_EQ(d.fetched().at(0, 0), 512.0f);
}

// --- FP8 -----------------------------------------------------------------------------------------

constexpr DType k4 = DType::kE4M3, k5 = DType::kE5M2;

TEST_F(CudaGemmTest, Fp8ProductsOfLinearLayers) {
  for (Fp8Problem p :
       {Fp8Problem{.name = "fprop", .a = k4, .b = k4, .d = kB},
        Fp8Problem{.name = "dgrad", .a = k5, .b = k4, .d = kB},
        Fp8Problem{.name = "wgrad", .a = k5, .b = k4, .d = kF},
        Fp8Problem{
            .name = "wgrad added", .a = k5, .b = k4, .d = kF, .accumulate = Accumulate::kYes},
        Fp8Problem{.name = "e4m3 with e5m2, added",
        .a = k4,
        .b = k5,
        .d = kF,
        .accumulate = Accumulate::kYes},
        Fp8Problem{.name = "e4m3 with e5m2, in bf16", .a = k4, .b = k5, .d = kB},
        Fp8Problem{
            .name = "fprop, fast", .a = k4, .b = k4, .d = kB, .multiply = Multiply::kFastFp8},
        Fp8Problem{
            .name = "fp32, fast", .a = k4, .b = k4, .d = kF, .multiply = Multiply::kFastFp8}})
    // Within one instruction; within one promotion; beyond.
    for (const int64_t k : {16, 80, 400}) {
      p.k = k, p.transpose_b = Transpose::kYes;
      test::expect_fp8_product(
          *device_, p, p.multiply == Multiply::kFastFp8 ? test::fast_error : test::promoted_error);
    }
}

TEST_F(CudaGemmTest, Fp8WithoutScalesHasScalesOfOne) {
  const HostMatrix a = test::fp8_operand(k4, 16, 32, 1), b = test::fp8_operand(k4, 16, 32, 2);
  HostMatrix one(kF, {1, 1});
  one.set(0, 0, 1);
  const DeviceMatrix a_there = there(a), b_there = there(b), one_there = there(one),
                     with = there(HostMatrix(kF, {16, 16})),
                     without = there(HostMatrix(kF, {16, 16}));
  const auto* const scale = Tensor(one_there).as<float>();
  const GemmCall call{.a = a_there, .b = b_there, .d = without, .transpose_b = Transpose::kYes};
  GemmCall scaled = call;
  scaled.d = with, scaled.scale_inv_a = scaled.scale_inv_b = scale;
  run(scaled);
  run(call);  // the scales of the previous call must not stay
  EXPECT_EQ(with.fetched(), without.fetched());
}

// cuBLASLt 13.1 on an H200 is off by more than one rounding of the sum.
TEST_F(CudaGemmTest, Fp8IsAddedToFp32Only) {
  const Tensor a = tensor(k4, 16, 16);
  GemmCall call{.a = a,
                .b = a,
                .d = tensor(kF, 16, 16),
                .transpose_b = Transpose::kYes,
                .accumulate = Accumulate::kYes};
  EXPECT_NO_THROW(run(call));
  call.d = tensor(kB, 16, 16);
  EXPECT_THROW(run(call), LogicError);
}

TEST_F(CudaGemmTest, Fp8ScalesAreAligned) {
  const Tensor a = tensor(k4, 16, 16), scales = tensor(kF, 1, 8);
  GemmCall call{.a = a,
                .b = a,
                .d = tensor(kF, 16, 16),
                .transpose_b = Transpose::kYes,
                .scale_inv_a = scales.as<float>(),
                .scale_inv_b = scales.as<float>() + 4};
  EXPECT_NO_THROW(run(call));
  call.scale_inv_b = scales.as<float>() + 1;
  EXPECT_THROW(run(call), LogicError);
}

TEST_F(CudaGemmTest, Fp8TakesRowsOfKOnly) {
  EXPECT_EQ(gemm().fp8_layout(), Fp8Layout::kRowsOfK);
  const Tensor a = tensor(k4, 16, 16), d = tensor(kB, 16, 16);
  for (const Transpose ta : kTransposes)
    for (const Transpose tb : kTransposes) {
      const GemmCall call{.a = a, .b = a, .d = d, .transpose_a = ta, .transpose_b = tb};
      if (ta == Transpose::kNo && tb == Transpose::kYes)
        EXPECT_NO_THROW(run(call));
      else
        EXPECT_THROW(run(call), LogicError);
    }
}

TEST_F(CudaGemmTest, Fp8SizesBesideMultiplesOf16AreErrors) {
  EXPECT_ERROR(run({.a = tensor(k4, 16, 24),
                    .b = tensor(k4, 16, 24),
                    .d = tensor(kB, 16, 16),
                    .transpose_b = Transpose::kYes}),
               "e4m3[16,24] x e4m3[16,24]^T -> bf16[16,16]", "multiples of 16");
}

// --- refusals ------------------------------------------------------------------------------------

TEST_F(CudaGemmTest, WrongShapesAreLogicErrors) {
  const Tensor a = tensor(kF, 4, 5), b = tensor(kF, 5, 6), d = tensor(kF, 4, 6);
  EXPECT_NO_THROW(run({.a = a, .b = b, .d = d}));
  EXPECT_THROW(run({.a = a, .b = b, .d = tensor(kF, 3, 6)}), LogicError);
  EXPECT_THROW(run({.a = a, .b = a, .d = d}), LogicError);
  EXPECT_THROW(run({.a = a, .b = b, .d = d, .transpose_a = Transpose::kYes}), LogicError);
}

TEST_F(CudaGemmTest, TypesThatGpusDoNotHaveAreLogicErrors) {
  const auto refused = [&](DType a, DType b, DType d) {
    const GemmCall call{.a = tensor(a, 16, 16),
                        .b = tensor(b, 16, 16),
                        .d = tensor(d, 16, 16),
                        .transpose_b = Transpose::kYes};
    EXPECT_THROW(run(call), LogicError) << name_of(a) << " " << name_of(b) << " " << name_of(d);
    PlanningAllocator plan;
    EXPECT_THROW(gemm().reserve(plan, std::array{call}), LogicError);
  };
  refused(kF, kF, kB);
  refused(kF, kB, kF);
  refused(kB, kF, kB);
  refused(k5, k5, kB);
  refused(k4, kB, kB);
  refused(k4, k4, k4);
  refused(DType::kF16, DType::kF16, kF);
}

TEST_F(CudaGemmTest, WithoutWorkspaceIsALogicError) {
  const Tensor x = tensor(kF, 4, 4);
  EXPECT_THROW(gemm().run({.a = x, .b = x, .d = tensor(kF, 4, 4)}), LogicError);
}

TEST_F(CudaGemmTest, ScalesOfOtherThanFp8AreLogicErrors) {
  const Tensor x = tensor(kB, 16, 16), scale = tensor(kF, 1, 1);
  const GemmCall call{.a = x, .b = x, .d = tensor(kB, 16, 16), .scale_inv_a = scale.as<float>()};
  EXPECT_THROW(run(call), LogicError);
}

// --- plans ---------------------------------------------------------------------------------------

TEST_F(CudaGemmTest, EveryKindOfProductIsPlannedOnce) {
  const Tensor a = tensor(kB, 32, 64), b = tensor(kB, 64, 48), d = tensor(kB, 32, 48);
  const GemmCall call{.a = a, .b = b, .d = d};
  const auto expect_plans = [&](const GemmCall& c, int64_t plans) {
    run(c);
    run(c);
    EXPECT_EQ(gemm().plans(), plans);
  };
  EXPECT_EQ(gemm().plans(), 0);
  expect_plans(call, 1);
  GemmCall other = call;
  other.a = tensor(kB, 32, 64);  // elsewhere, but of the same kind
  expect_plans(other, 1);
  other.multiply = Multiply::kTf32;  // has no effect for bf16
  expect_plans(other, 1);
  other.accumulate = Accumulate::kYes;
  expect_plans(other, 2);
  other.a.data += 2;
  other.a.rows = 16, other.d.rows = 16;  // fewer rows, at an odd address
  expect_plans(other, 3);
  other.a.data += 14;
  expect_plans(other, 4);
  other.b = tensor(kB, 64, 64).columns(0, 48);
  expect_plans(other, 5);
  other.d = tensor(kF, 16, 48);
  expect_plans(other, 6);
}

TEST_F(CudaGemmTest, WorkspaceIsPlannedAsItIsTaken) {
  const Tensor x = tensor(kF, 4, 4);
  const std::array calls{GemmCall{.a = x, .b = x, .d = x}, GemmCall{.a = x, .b = x, .d = x}};
  PlanningAllocator plan(device_->alignment());
  make_cuda_planning_device()->gemm().reserve(plan, calls);
  gemm().reserve(*allocator_, calls);
  gemm().reserve(*allocator_, calls);
  EXPECT_EQ(plan.use().of(kScratchMemory), allocator_->use().of(kScratchMemory));
}

}  // namespace
}  // namespace mpt
