// OptimizerOps on the GPU against the CPU, bit for bit: every combination of rule, weight rounding,
// state and weight format, through the optimizer itself.
#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "cuda/device_fixture.h"
#include "optim/combinations.h"
#include "support/device_matrix.h"
#include "support/draws.h"

namespace mpt::test {
namespace {

using OptimizerOpsOnGpu = CudaDeviceTest;

// Returns weights and states after two early steps and one so late that bias corrections are 1,
// which a lone lane skips.
std::vector<uint32_t> updated(const RunSetup& setup, std::unique_ptr<Device> device) {
  OptimizerRun run(setup, combination_shapes(), std::move(device));
  Draws draws(21);
  for (size_t i = 0; i < run.targets().size(); ++i)
    run.encode(i, [&](int64_t, int64_t) { return draws.signed_binades(-14, 1); });
  run.optimizer().weights_initialized();
  for (const int64_t t : {1, 2, 100'000}) {
    for (size_t i = 0; i < run.targets().size(); ++i)
      run.fill_gradient(i, [&](int64_t, int64_t) { return draws.signed_binades(-14, 1); });
    run.step(t, 0.7f);
  }
  return run.everything();
}

// GEMMs add in a different order on each device, so orthogonalized directions are only close.
bool has_same_bits(const Combination& combination) {
  return !orthogonalization_options(OptimizerConfig(combination.setup.config).rule);
}
std::vector<Combination> combinations_with_same_bits() {
  std::vector<Combination> found;
  std::ranges::copy_if(tested_combinations(), std::back_inserter(found), has_same_bits);
  return found;
}

// A quarter of the list per test, so that they can run in parallel.
void expect_same_bits_of_quarter(size_t quarter) {
  const std::vector<Combination> all = combinations_with_same_bits();
  for (size_t i = quarter; i < all.size(); i += 4) {
    SCOPED_TRACE(all[i].name);
    const RunSetup& setup = all[i].setup;
    ASSERT_EQ(updated(setup, make_cuda_device({.tuning = GemmTuning::kOff})),
              updated(setup, make_cpu_device(1)));
  }
}
TEST_F(OptimizerOpsOnGpu, SameBitsFirstQuarter) { expect_same_bits_of_quarter(0); }
TEST_F(OptimizerOpsOnGpu, SameBitsSecondQuarter) { expect_same_bits_of_quarter(1); }
TEST_F(OptimizerOpsOnGpu, SameBitsThirdQuarter) { expect_same_bits_of_quarter(2); }
TEST_F(OptimizerOpsOnGpu, SameBitsFourthQuarter) { expect_same_bits_of_quarter(3); }

// Steps of 1e-3 times directions of at most 0.2 sqrt(277); GEMM sums of the directions, whose
// elements are below 1, differ by some 1e-6 of them.
TEST_F(OptimizerOpsOnGpu, OrthogonalizedStepsAreClose) {
  int checked = 0;
  for (const Combination& one : every_combination()) {
    const RunSetup& setup = one.setup;
    if (has_same_bits(one) || setup.encoding.format != WeightFormat::kF32 ||
        setup.options.state != Format::kF32)
      continue;
    SCOPED_TRACE(one.name);
    const std::vector<uint32_t> gpu =
                                    updated(setup, make_cuda_device({.tuning = GemmTuning::kOff})),
                                cpu = updated(setup, make_cpu_device(1));
    ASSERT_EQ(gpu.size(), cpu.size());
    for (size_t i = 0; i < cpu.size(); ++i)
      ASSERT_NEAR(float_of(gpu[i]), float_of(cpu[i]), 1e-6f) << i;
    ++checked;
  }
  EXPECT_GT(checked, 0);
}

// --- one rank of several -------------------------------------------------------------------------

// The others' parts keep their values in memory, on either device: the comparison covers one rank's
// work.
class SilentOthers final : public Transport {
 public:
  using Transport::Transport;
  [[nodiscard]] std::string name() const override { return "ranks that say nothing"; }
  void reduce_scatter_sum(std::span<const Tensor>, const Tensor&) override {}
  void all_gather(std::span<const Tensor>) override {}
  void all_reduce_max(const Tensor&) override {}
  void gather_host(std::span<const std::byte>, std::span<std::byte>) override {}
  void broadcast_host(std::span<std::byte>, int64_t) override {}
  void barrier() override {}
  [[nodiscard]] int64_t bytes_sent() const override { return 0; }
  void abort(const std::string&) noexcept override {}
};
class WorkAtOnce final : public CommStream {
 public:
  Event run(std::function<void()> work) override {
    work();
    return ++given_;
  }
  void wait(Event) override {}
  void settle() override {}

 private:
  Event given_ = 0;
};

// Appends the bytes of a part, row by row; nothing else of it need be in memory.
void append_bytes(Device& device, const TensorPart& part, std::vector<std::byte>& bytes) {
  const Tensor& t = part.whole.tensor;
  for (int64_t first = part.first; first < part.first + part.count;) {
    const int64_t row = first / t.cols, end = std::min((row + 1) * t.cols, part.first + part.count);
    const size_t size = size_t((end - first) * size_of(t.dtype)), at = bytes.size();
    const auto address = reinterpret_cast<uintptr_t>(t.data) +
                         uintptr_t((row * t.stride + first % t.cols) * size_of(t.dtype));
    bytes.resize(at + size);
    device.download({reinterpret_cast<std::byte*>(address), t.dtype, 1, end - first, end - first},
                    bytes.data() + at);
    first = end;
  }
}

struct OfRank {
  std::vector<std::byte> weights, states;
  double grad_norm = 0;
};

// Returns one rank's weights and states after two of its own steps.
OfRank updated_blocks(const RunSetup& setup, int64_t rank, int64_t ranks,
                      std::unique_ptr<Device> made) {
  Device& device = *made;
  const std::unique_ptr<Device> unguarded = make_cpu_device(1);
  Communicator others(std::make_unique<SilentOthers>(rank, ranks), std::make_unique<WorkAtOnce>(),
                      *unguarded);
  const Partition partition(tensors_to_cut(setup.config), ranks);
  OptimizerRun run(setup, shapes_to_cut(), std::move(made), {partition, others});
  Optimizer& optimizer = run.optimizer();
  Draws draws(21);
  for (size_t i = 0; i < run.targets().size(); ++i)
    run.encode(i, [&](int64_t, int64_t) { return draws.signed_binades(-14, 1); });
  optimizer.weights_initialized();
  for (int64_t t = 1; t <= 2; ++t) {
    for (size_t i = 0; i < run.targets().size(); ++i)
      run.fill_gradient(i, [&](int64_t, int64_t) { return draws.signed_binades(-14, 1); });
    optimizer.prepare({.t = t});
    optimizer.measure_gradients({});
    optimizer.update();
    optimizer.rescale();
    device.synchronize();
  }
  OfRank result{.weights = {}, .states = {}, .grad_norm = optimizer.control().grad_norm};
  for (size_t i = 0; i < run.targets().size(); ++i) {
    const UpdateTarget& target = run.targets()[i];
    for (const TensorPart& part : parts_of(target.weights, target.name, optimizer.blocks(i)))
      append_bytes(device, part, result.weights);
  }
  for (const TensorPart& part : optimizer.parts_to_save())
    append_bytes(device, part, result.states);
  return result;
}

// Unclipped: the last bits of the norm depend on the device.
TEST_F(OptimizerOpsOnGpu, SameBitsOfARanksUnits) {
  const std::vector<Combination> all = combinations_with_same_bits();
  size_t bytes = 0;
  for (size_t i = 0; i < all.size(); i += 11) {
    SCOPED_TRACE(all[i].name);
    RunSetup setup = all[i].setup;
    setup.config.clip_grad_norm = 0;
    const auto rank = int64_t(i % 3);
    const OfRank gpu =
        updated_blocks(setup, rank, 3, make_cuda_device({.tuning = GemmTuning::kOff}));
    const OfRank cpu = updated_blocks(setup, rank, 3, make_cpu_device(1));
    ASSERT_TRUE(gpu.weights == cpu.weights);
    ASSERT_TRUE(gpu.states == cpu.states);
    ASSERT_NEAR(gpu.grad_norm, cpu.grad_norm, cpu.grad_norm * 2 * 14000 * 0x1p-53);
    bytes += gpu.states.size();
  }
  EXPECT_GT(bytes, 0u);
}

// A lane sums its own part, so the order differs: all terms are positive, and each of the roundings
// of either order costs at most 2^-53 of the sum.
TEST_F(OptimizerOpsOnGpu, SumsOfSquares) {
  const auto cpu = make_cpu_device(1);
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t cols : {1, 100, 257, 9000}) {
      HostMatrix x(dtype, {.rows = 5, .cols = cols, .padding = 3});
      Draws draws(23);
      x.fill([&](int64_t, int64_t) { return draws.signed_binades(-10, 10); });
      const int64_t pieces = square_sums(5, cols);
      std::vector<double> expected(static_cast<size_t>(pieces)), found(expected);
      const Tensor sums{reinterpret_cast<std::byte*>(expected.data()), DType::kF64, 1, pieces,
                        pieces};
      make_ops<OptimizerOps>(cpu->stream())->sum_of_squares(x, sums);
      const Tensor gpu_sums = allocator_->tensor(kScratchMemory, DType::kF64, 1, pieces);
      make_ops<OptimizerOps>(device_->stream())
          ->sum_of_squares(DeviceMatrix(*device_, *allocator_, x), gpu_sums);
      device_->download(gpu_sums, reinterpret_cast<std::byte*>(found.data()));
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_NEAR(found[i], expected[i], expected[i] * 2 * double(5 * cols) * 0x1p-53)
            << cols << " columns";
    }
}

}  // namespace
}  // namespace mpt::test
