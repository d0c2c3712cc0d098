// The optimizers' operations on the GPU against the CPU, bit for bit: every combination of rule, write-back,
// state and weight format, through the optimizer itself.
#include <memory>
#include <vector>

#include "cuda/device_fixture.h"
#include "optim/combinations.h"
#include "support/device_matrix.h"
#include "support/draws.h"

namespace mpt::test {
namespace {

using UpdateOpsOnGpu = CudaDeviceTest;

// Weights and states after two steps.
std::vector<uint32_t> updated(const RunSetup& setup, std::unique_ptr<Device> device) {
  OptimizerRun run(setup, combination_shapes(), std::move(device));
  Draws draws(21);
  for (size_t i = 0; i < run.targets().size(); ++i)
    run.encode(i, [&](int64_t, int64_t) { return draws.signed_binades(-14, 1); });
  run.optimizer().weights_initialized();
  for (int64_t t = 1; t <= 2; ++t) {
    for (size_t i = 0; i < run.targets().size(); ++i)
      run.fill_gradient(i, [&](int64_t, int64_t) { return draws.signed_binades(-14, 1); });
    run.step(t, 0.7f);
  }
  return run.everything();
}

// A quarter of the list a test, so that they can run at once.
void expect_same_bits_of_quarter(size_t quarter) {
  const std::vector<Combination>& all = every_combination();
  for (size_t i = quarter; i < all.size(); i += 4) {
    SCOPED_TRACE(all[i].name);
    const RunSetup& setup = all[i].setup;
    ASSERT_EQ(updated(setup, make_cuda_device({.tuning = GemmTuning::kOff})),
              updated(setup, make_cpu_device(1)));
  }
}
TEST_F(UpdateOpsOnGpu, SameBitsFirstQuarter) { expect_same_bits_of_quarter(0); }
TEST_F(UpdateOpsOnGpu, SameBitsSecondQuarter) { expect_same_bits_of_quarter(1); }
TEST_F(UpdateOpsOnGpu, SameBitsThirdQuarter) { expect_same_bits_of_quarter(2); }
TEST_F(UpdateOpsOnGpu, SameBitsFourthQuarter) { expect_same_bits_of_quarter(3); }

// A lane sums its own part, so the order is another: all terms are positive, and each of the roundings of
// either order costs at most 2^-53 of the sum.
TEST_F(UpdateOpsOnGpu, SumsOfSquares) {
  const auto cpu = make_cpu_device(1);
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t cols : {1, 100, 257, 9000}) {
      HostMatrix x(dtype, {.rows = 5, .cols = cols, .padding = 3});
      Draws draws(23);
      x.fill([&](int64_t, int64_t) { return draws.signed_binades(-10, 10); });
      const int64_t pieces = square_sums(5, cols);
      std::vector<double> expected(static_cast<size_t>(pieces)), found(expected);
      const Tensor sums{reinterpret_cast<std::byte*>(expected.data()), DType::kF64, 1, pieces, pieces};
      make_update_ops(*cpu)->sum_of_squares(x, sums);
      const Tensor gpu_sums = allocator_->tensor(Purpose::kScratch, DType::kF64, 1, pieces);
      make_update_ops(*device_)->sum_of_squares(DeviceMatrix(*device_, *allocator_, x), gpu_sums);
      device_->download(gpu_sums, reinterpret_cast<std::byte*>(found.data()));
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_NEAR(found[i], expected[i], expected[i] * 2 * double(5 * cols) * 0x1p-53)
            << cols << " columns";
    }
}

}  // namespace
}  // namespace mpt::test
