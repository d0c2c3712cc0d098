// Whole training steps (forward, backward, gradient norm, optimizer) on the CPU, in tokens per second.
//
//   step_bench --benchmark_filter=A/fp32        shapes A to E; regimes below (weights-compute where these
//   differ); rules adamw and m_plus_adam
// Counters: tokens/s, and % of the FP32 product rate measured in the same process (formula:
// train/throughput.h).
#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/philox.h"
#include "shapes.h"
#include "train/run_model.h"
#include "train/throughput.h"

namespace mpt {
namespace {

struct Regime {
  const char* name;
  WeightFormat weights;
  ComputeFormat compute;

  [[nodiscard]] Format others() const { return weights == WeightFormat::kF32 ? Format::kF32 : Format::kBF16; }
};

constexpr std::array<Regime, 7> kRegimes{{{"fp32", WeightFormat::kF32, ComputeFormat::kF32},
                                          {"bf16", WeightFormat::kBF16, ComputeFormat::kBF16},
                                          {"bf16-fp8", WeightFormat::kBF16, ComputeFormat::kFp8},
                                          {"block_fp8-bf16", WeightFormat::kBlockFp8, ComputeFormat::kBF16},
                                          {"block_fp8-fp8", WeightFormat::kBlockFp8, ComputeFormat::kFp8},
                                          {"nvfp4-bf16", WeightFormat::kNvfp4, ComputeFormat::kBF16},
                                          {"nvfp4-fp8", WeightFormat::kNvfp4, ComputeFormat::kFp8}}};

RunConfig config_of(const Shape& shape, const Regime& regime, UpdateRule rule) {
  RunConfig config;
  config.name = shape.name;
  config.model = shape.model();
  config.batch = {.seq_len = shape.seq_len, .tokens_per_step = shape.tokens(), .micro_batch_rows = 0};
  config.precision.weights = regime.weights;
  config.precision.compute = regime.compute;
  config.precision.optimizer_state = config.precision.gradient = regime.others();
  config.optimizer.rule = rule;
  config.optimizer.lr_additive = 1e-3;
  config.optimizer.lr_multiplicative = 1e-4;
  config.train.steps = 1000;
  return config;
}

std::vector<int32_t> random_tokens(const Shape& shape, uint32_t row) {
  const RandomCounter counter{1, 0, row, 0, Stream::kToy};
  std::vector<int32_t> tokens(size_t(shape.tokens()));
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = int32_t(uint64_t{counter.word(uint32_t(i))} * uint64_t(shape.vocab) >> 32);
  return tokens;
}

void training_step(benchmark::State& state, const Shape& shape, const Regime& regime, UpdateRule rule) {
  RunConfig config = config_of(shape, regime, rule);
  config.device.type = DeviceType::kCpu;
  const std::unique_ptr<Device> device = make_device(config.device);
  const double limit = measured_product_rate(*device).flops_per_second;
  const std::unique_ptr<Allocator> allocator = device->make_allocator();
  RunModel model(config, *device, *allocator);
  initialize_weights(model.weights, 0.02, 1, *device);
  model.weights_changed();
  model.optimizer.weights_initialized();
  const std::vector<int32_t> tokens = random_tokens(shape, 0), targets = random_tokens(shape, 1);
  const auto n = double(tokens.size());
  int64_t t = 0;
  const auto step = [&] {
    model.llama.forward_backward({tokens, targets},
                                 {.gradient_scale = float(1 / n), .accumulate = Accumulate::kNo});
    model.llama.finish_gradients();
    const double norm = model.optimizer.grad_norm();
    model.optimizer.step(
        {.t = ++t, .lr_additive = 1e-3, .lr_multiplicative = 1e-4, .grad_scale = clip_scale(1.0, norm)});
    model.weights_changed();
  };
  step();  // touches all memory for the first time
  for (auto _ : state) step();
  using benchmark::Counter;
  state.counters["tokens/s"] = Counter(n, Counter::kIsIterationInvariantRate);
  const double flops = n * flops_per_token(config.model, shape.seq_len);
  state.counters["%limit"] = Counter(100 * flops / limit, Counter::kIsIterationInvariantRate);
}

void register_all() {
  for (const Shape& shape : kShapes)
    for (const Regime& regime : kRegimes)
      for (const UpdateRule rule : {UpdateRule::kAdamW, UpdateRule::kMPlusAdam})
        benchmark::RegisterBenchmark(
            fmt::format("{}/{}/{}", shape.name, regime.name, name_of(rule)).c_str(),
            [&shape, &regime, rule](benchmark::State& state) { training_step(state, shape, regime, rule); })
            ->Unit(benchmark::kMillisecond)
            ->UseRealTime();
}

}  // namespace
}  // namespace mpt

int main(int argc, char** argv) {
  mpt::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
