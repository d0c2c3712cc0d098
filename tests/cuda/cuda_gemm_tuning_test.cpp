// Tuned GEMM algorithms: chosen once per kind of GEMM, stored, restored, refused.
#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "cuda/device_fixture.h"
#include "device/cuda/cuda_handles.h"
#include "device/cuda/gemm_tuning.h"
#include "device/gemm_problem.h"
#include "support/captured_log.h"
#include "support/expect_error.h"

namespace mpt {
namespace {

using test::GemmProblem;

class CudaGemmTuning : public test::CudaDeviceTest {
 protected:
  void SetUp() override {
    CudaDeviceTest::SetUp();
    if (!IsSkipped()) use({});
  }
  Tensor tensor(DType dtype, int64_t rows, int64_t cols) {
    return allocator_->tensor({"data"}, dtype, rows, cols);
  }
  // Three kinds, one of them twice; as declared by modules: without addresses.
  static std::vector<GemmCall> calls() {
    const auto planned = [](DType dtype, int64_t rows, int64_t cols) {
      return Tensor{nullptr, dtype, rows, cols, cols};
    };
    const GemmCall bf16{.a = planned(DType::kBF16, 32, 16),
                        .b = planned(DType::kBF16, 48, 16),
                        .d = planned(DType::kBF16, 32, 48),
                        .transpose_b = Transpose::kYes};
    const GemmCall fp32{.a = planned(DType::kF32, 16, 8),
                        .b = planned(DType::kF32, 8, 24),
                        .d = planned(DType::kF32, 16, 24),
                        .accumulate = Accumulate::kYes};
    const GemmCall fp8{.a = planned(DType::kE5M2, 32, 64),
                       .b = planned(DType::kE4M3, 16, 64),
                       .d = planned(DType::kF32, 32, 16),
                       .transpose_b = Transpose::kYes};
    return {bf16, fp32, fp8, bf16};
  }
};

TEST_F(CudaGemmTuning, PlansEveryKindOnceAndComputesAsBefore) {
  gemm().reserve(*allocator_, calls());
  EXPECT_EQ(gemm().plans(), 3);
  gemm().reserve(*allocator_, calls());
  EXPECT_EQ(gemm().plans(), 3);
  test::expect_gemm(*device_, *allocator_,
                    {.m = 32,
                     .n = 48,
                     .k = 16,
                     .transpose_b = Transpose::kYes,
                     .types = {DType::kBF16, DType::kBF16, DType::kBF16}});
  EXPECT_EQ(gemm().plans(), 3);
  test::expect_gemm(*device_, *allocator_,
                    {.m = 16, .n = 24, .k = 8, .accumulate = Accumulate::kYes});
  EXPECT_EQ(gemm().plans(), 3);
}

TEST_F(CudaGemmTuning, APlanTimesNothing) {
  PlanningAllocator plan(device_->alignment());
  gemm().reserve(plan, calls());
  EXPECT_EQ(gemm().plans(), 0);
}

TEST_F(CudaGemmTuning, ChoicesAreStoredAndMadeAgain) {
  gemm().reserve(*allocator_, calls());
  const std::vector<GemmChoice> choices = gemm().choices();
  ASSERT_EQ(choices.size(), 3u);
  EXPECT_EQ(choices[0].key, "bf16[32,16] x bf16[48,16]^T -> bf16[32,48]");
  EXPECT_EQ(choices[1].key, "e5m2[32,64] x e4m3[16,64]^T -> fp32[32,16]");
  EXPECT_EQ(choices[2].key, "fp32[16,8] x fp32[8,24] -> fp32[16,24] added");

  use({});
  const test::CapturedLog log;
  gemm().restore(choices);
  EXPECT_EQ(gemm().choices(), choices);
  gemm().reserve(*allocator_, calls());
  EXPECT_EQ(gemm().choices(), choices);
  EXPECT_EQ(gemm().plans(), 3);
  EXPECT_EQ(log.text(), "");
}

// A choice restored after its GEMM was planned counts too: here that of another kind, which must
// then be in use.
TEST_F(CudaGemmTuning, ChoicesRestoredLateReplaceThoseMade) {
  gemm().reserve(*allocator_, calls());
  const std::vector<GemmChoice> choices = gemm().choices();
  gemm().restore(choices);
  EXPECT_EQ(gemm().plans(), 0);
  gemm().reserve(*allocator_, calls());
  EXPECT_EQ(gemm().choices(), choices);
}

TEST_F(CudaGemmTuning, ChoicesForAnotherLibraryAreLeftOutWithAWarning) {
  gemm().reserve(*allocator_, calls());
  std::vector<GemmChoice> choices = gemm().choices();
  for (GemmChoice& choice : choices) {
    const size_t at = choice.algorithm.find(' ');
    ASSERT_NE(at, std::string::npos);
    choice.algorithm =
        fmt::format("{} 9{}", choice.algorithm.substr(0, at), choice.algorithm.substr(at + 1));
  }
  use({});
  const test::CapturedLog log;
  gemm().restore(choices);
  EXPECT_TRUE(log.has("cuBLASLt 9")) << log.text();
  EXPECT_TRUE(log.has("may differ")) << log.text();
  EXPECT_TRUE(gemm().choices().empty());
  EXPECT_NO_THROW(gemm().reserve(*allocator_, calls()));
  EXPECT_EQ(gemm().choices().size(), 3u);
}

TEST_F(CudaGemmTuning, ADamagedChoiceIsAnError) {
  gemm().reserve(*allocator_, calls());
  const GemmChoice whole = gemm().choices().front();
  GemmChoice shorter = whole, odd = whole;
  shorter.algorithm.pop_back();
  odd.algorithm.back() = 'x';
  EXPECT_ERROR(gemm().restore(std::array{shorter}), whole.key, "hexadecimal digits");
  EXPECT_ERROR(gemm().restore(std::array{odd}), whole.key, "hexadecimal digits");
}

// Noise must decide neither between the first and the fastest nor between those about as fast.
TEST(FirstOfTheFastest, TakesAnotherOnlyForAGainAboveTheNoise) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const auto chosen = [](std::vector<double> us) { return first_of_the_fastest(us); };
  EXPECT_EQ(chosen({100}), 0u);
  EXPECT_EQ(chosen({100, 98, 97.1}), 0u);
  EXPECT_EQ(chosen({100, 96}), 1u);
  EXPECT_EQ(chosen({100, 81, 80, 79}), 1u);  // within 3 % of the fastest
  EXPECT_EQ(chosen({5.9, 5.5, 5}), 0u);      // within a microsecond
  EXPECT_EQ(chosen({6.1, 5.5, 5}), 1u);
  EXPECT_EQ(chosen({kNever, kNever, 50}), 2u);
}

TEST_F(CudaGemmTuning, WhatIsClearlyFasterIsChosenOfWhatCanRun) {
  const GemmKey key = GemmKey::of({.a = {nullptr, DType::kBF16, 64, 64, 64},
                                   .b = {nullptr, DType::kE4M3, 64, 64, 64},
                                   .d = {nullptr, DType::kF32, 64, 64, 64}});
  std::vector<int> runs(3);
  const auto run = [&](const GemmAddresses& x, size_t candidate) {
    ++runs[candidate];
    // Not zeros, which would take less power than the operands of training.
    std::array<uint32_t, 64> row{};
    check_cuda(
        cudaMemcpyAsync(row.data(), x.a, 128, cudaMemcpyDeviceToHost, stream_of(device_->stream())),
        "copy");
    EXPECT_GT(std::count_if(row.begin(), row.begin() + 32, [](uint32_t word) { return word != 0; }),
              30);
    const int repeats = candidate == 1 ? 1 : 200;
    for (int i = 0; i < repeats; ++i)
      check_cuda(cudaMemsetAsync(x.d, 0, 64 * 64 * 4, stream_of(device_->stream())),
                 "cudaMemsetAsync");
    return candidate != 2;
  };
  const auto chosen = [&](size_t candidates) {
    return time_candidates({.key = key, .candidates = candidates, .run = run},
                           stream_of(device_->stream()));
  };
  const auto best = chosen(3);
  ASSERT_TRUE(best.has_value());
  EXPECT_EQ(best->best, 1u);
  EXPECT_LT(best->best_us, best->first_us);
  EXPECT_GT(runs[0], 3);
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_EQ(runs[2], 1);  // not again after it failed
  EXPECT_EQ(chosen(1)->best, 0u);
}

#ifdef MPT_FAKE_CUDA
// The library refuses an algorithm of another GEMM.
TEST_F(CudaGemmTuning, AStoredAlgorithmThatIsNotTakenIsReplacedWithAWarning) {
  gemm().reserve(*allocator_, calls());
  const std::vector<GemmChoice> choices = gemm().choices();
  std::vector<GemmChoice> swapped = choices;
  std::swap(swapped[0].algorithm, swapped[1].algorithm);
  use({.tuning = GemmTuning::kOff});
  const test::CapturedLog log;
  gemm().restore(swapped);
  EXPECT_EQ(gemm().choices(), swapped);
  gemm().reserve(*allocator_, calls());
  for (const size_t i : {0, 1})
    EXPECT_TRUE(log.has(fmt::format("{}: the stored algorithm", choices[i].key))) << log.text();
  EXPECT_FALSE(log.has(choices[2].key)) << log.text();
  EXPECT_NE(gemm().choices()[0], swapped[0]);
  EXPECT_EQ(gemm().choices()[2], choices[2]);
}

TEST_F(CudaGemmTuning, TimesEveryKindOnceAndFreesWhatItTook) {
  gemm().reserve(*allocator_, {});
  const int64_t live = fake_cuda::counters().live_allocations;
  gemm().reserve(*allocator_, calls());
  const fake_cuda::Counters after = fake_cuda::counters();
  EXPECT_GT(after.gemms, 3);
  EXPECT_EQ(after.live_allocations, live + 1);  // the workspace
  gemm().reserve(*allocator_, calls());
  EXPECT_EQ(fake_cuda::counters().gemms, after.gemms);
  const std::vector<GemmChoice> choices = gemm().choices();
  use({});
  gemm().restore(choices);
  gemm().reserve(*allocator_, calls());
  EXPECT_EQ(fake_cuda::counters().gemms, after.gemms);
}

TEST_F(CudaGemmTuning, WithoutMemoryTheFirstAlgorithmIsTaken) {
  gemm().reserve(*allocator_, calls());  // takes the workspace
  const Tensor x{nullptr, DType::kF32, 1024, 1024, 1024};
  fake_cuda::set_device_bytes(CudaGemm::kWorkspaceBytes + (1 << 20));
  const test::CapturedLog log;
  gemm().reserve(*allocator_, std::array{GemmCall{.a = x, .b = x, .d = x}});
  fake_cuda::set_device_bytes(int64_t{4} << 30);
  EXPECT_TRUE(log.has("fp32[1024,1024] x fp32[1024,1024]")) << log.text();
  EXPECT_TRUE(log.has("not enough memory")) << log.text();
  EXPECT_EQ(gemm().plans(), 4);
}
#endif

}  // namespace
}  // namespace mpt
