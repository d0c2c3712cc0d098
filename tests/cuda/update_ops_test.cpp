// The optimizers' operations on the GPU against the CPU, bit for bit: every combination of rule, write-back,
// state and weight format, through the optimizer itself.
#include <algorithm>
#include <memory>
#include <vector>

#include "cuda/gpu.h"
#include "optim/combinations.h"
#include "optim/update_ops_backends.h"
#include "support/draws.h"
#include "support/host_matrix.h"

namespace mpt::test {
namespace {

// Copies of the tensors of one call, which go back when it has been made.
class Mirror {
 public:
  Tensor operator()(const Tensor& host) {
    const Tensor device = gpu_.copy(host);
    if (host.data != nullptr) pairs_.push_back({host, device});
    return device;
  }
  EncodedTensor operator()(const EncodedTensor& host) {
    EncodedTensor device = host;
    device.codes = (*this)(host.codes);
    device.block_scales = (*this)(host.block_scales);
    device.tensor_scale = (*this)(host.tensor_scale);
    return device;
  }
  // Of an address within a tensor that was copied.
  const float* operator()(const float* address) const {
    const auto* const byte = reinterpret_cast<const std::byte*>(address);
    for (const auto& [host, device] : pairs_)
      if (byte >= host.data && byte < host.data + host.bytes())
        return reinterpret_cast<const float*>(device.data + (byte - host.data));
    throw LogicError("an address within no tensor of the call");
  }
  void fetch() {
    for (const auto& [host, device] : pairs_) gpu_.fetch(device, host);
  }
  [[nodiscard]] cudaStream_t stream() const { return gpu_.stream(); }

 private:
  struct Pair {
    Tensor host, device;
  };
  Gpu gpu_;
  std::vector<Pair> pairs_;
};

// The GPU's operations for an optimizer whose tensors lie in host memory.
class MirroredUpdateOps final : public UpdateOps {
 public:
  void update(const UpdateCall& call) override {
    Mirror mirror;
    UpdateCall device = call;
    device.weights = mirror(call.weights);
    std::vector<Tensor> states;
    for (const Tensor& state : call.states) states.push_back(mirror(state));
    device.states = states;
    device.gradient = mirror(call.gradient);
    device.maximum = {.units = mirror(call.maximum.units), .tensor = mirror(call.maximum.tensor)};
    device.survival = mirror(call.survival);
    device.residuals = mirror(call.residuals);
    if (call.factors.values != nullptr) {
      mirror(factors_);
      device.factors.values = mirror(call.factors.values);
    }
    std::visit([&](auto& rule) { mirror_tables(mirror, rule); }, device.rule);
    make_cuda_update_ops(mirror.stream())->update(device);
    mirror.fetch();
  }
  void project(const ProjectionCall& call) override {
    Mirror mirror;
    ProjectionCall device = call;
    device.weights = mirror(call.weights);
    device.gradient = mirror(call.gradient);
    device.projection = mirror(call.projection);
    device.second = mirror(call.second);
    device.scratch = {.gradient = mirror(call.scratch.gradient),
                      .pieces = mirror(call.scratch.pieces),
                      .projected = mirror(call.scratch.projected),
                      .norms = mirror(call.scratch.norms),
                      .factors = mirror(call.scratch.factors)};
    make_cuda_update_ops(mirror.stream())->project(device);
    mirror.fetch();
    factors_ = call.scratch.factors;
  }
  void sum_of_squares(const Tensor& tensor, const Tensor& partial) override { sum_any(tensor, partial); }
  void sum_of_squares(const EncodedTensor& tensor, const Tensor& partial) override {
    sum_any(tensor, partial);
  }
  [[nodiscard]] int64_t survival_rows(int64_t rows, int64_t cols) const override {
    return make_cpu_update_ops()->survival_rows(rows, cols);
  }

 private:
  static void mirror_tables(Mirror& mirror, auto& rule) {
    if constexpr (requires { rule.decay.factor_minus_one; }) {
      for (const float** const table : {&rule.decay.factor, &rule.decay.factor_minus_one})
        *table = mirror(Tensor{reinterpret_cast<std::byte*>(const_cast<float*>(*table)), DType::kF32, 1,
                               ExponentDecay::kEntries, ExponentDecay::kEntries})
                     .as<float>();
    }
  }
  static void sum_any(const auto& tensor, const Tensor& partial) {
    Mirror mirror;
    const auto device = mirror(tensor);
    const Tensor sums = mirror(partial);
    make_cuda_update_ops(mirror.stream())->sum_of_squares(device, sums);
    mirror.fetch();
  }

  Tensor factors_;  // that the latest projection left, in host memory
};

using UpdateOpsOnGpu = GpuTest;

// Weights and states after two steps.
std::vector<uint32_t> updated(const RunSetup& setup, std::unique_ptr<UpdateOps> ops) {
  OptimizerRun run(setup, combination_shapes());
  Draws draws(21);
  for (size_t i = 0; i < run.targets().size(); ++i)
    run.encode(i, [&](int64_t, int64_t) { return draws.signed_binades(-14, 1); });
  run.optimizer().weights_initialized();
  run.optimizer().replace_ops(std::move(ops));
  for (int64_t t = 1; t <= 2; ++t) {
    for (size_t i = 0; i < run.targets().size(); ++i)
      fill_tensor(run.gradient(i), [&](int64_t, int64_t) { return draws.signed_binades(-14, 1); });
    run.step(t, 0.7f);
  }
  return run.everything();
}

void expect_same_bits(const Combination& c) {
  SCOPED_TRACE(c.name);
  const std::vector<uint32_t> gpu = updated(c.setup, std::make_unique<MirroredUpdateOps>());
  ASSERT_EQ(gpu, updated(c.setup, make_cpu_update_ops()));
}

// A quarter of the list a test, so that they can run at once.
void expect_same_bits_of_quarter(size_t quarter) {
  const std::vector<Combination>& all = every_combination();
  for (size_t i = quarter; i < all.size(); i += 4) expect_same_bits(all[i]);
}
TEST_F(UpdateOpsOnGpu, SameBitsFirstQuarter) { expect_same_bits_of_quarter(0); }
TEST_F(UpdateOpsOnGpu, SameBitsSecondQuarter) { expect_same_bits_of_quarter(1); }
TEST_F(UpdateOpsOnGpu, SameBitsThirdQuarter) { expect_same_bits_of_quarter(2); }
TEST_F(UpdateOpsOnGpu, SameBitsFourthQuarter) { expect_same_bits_of_quarter(3); }

// A lane sums its own part, so the order is another: all terms are positive, and each of the roundings of
// either order costs at most 2^-53 of the sum.
TEST_F(UpdateOpsOnGpu, SumsOfSquares) {
  MirroredUpdateOps on_gpu;
  const auto on_cpu = make_cpu_update_ops();
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t cols : {1, 100, 257, 9000}) {
      HostMatrix x(dtype, {.rows = 5, .cols = cols, .padding = 3});
      Draws draws(23);
      x.fill([&](int64_t, int64_t) { return draws.signed_binades(-10, 10); });
      const int64_t pieces = square_sums(5, cols);
      std::vector<double> expected(static_cast<size_t>(pieces)), found(expected);
      const auto view = [&](std::vector<double>& v) {
        return Tensor{reinterpret_cast<std::byte*>(v.data()), DType::kF64, 1, pieces, pieces};
      };
      on_cpu->sum_of_squares(x, view(expected));
      on_gpu.sum_of_squares(x, view(found));
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_NEAR(found[i], expected[i], expected[i] * 2 * double(5 * cols) * 0x1p-53)
            << cols << " columns";
    }
}

}  // namespace
}  // namespace mpt::test
