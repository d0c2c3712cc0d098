// Whole training steps (forward, backward, gradient norm, optimizer) on the CPU, in tokens per
// second.
//
//   step_bench --benchmark_filter=A/fp32        shapes A to E; regimes below (weights-compute where
//                                               these differ); rules adamw and m_plus_adam.
//                                               bf16+amx_bf16 and so on: dot products of BF16
//                                               numbers by that instruction, where the processor
//                                               has it
//   step_bench --breakdown ...                  also milliseconds per step by operation, self times
//   step_bench --bound ...                      for fp32/adamw also the bound (step_bound.h), its
//                                               parts in milliseconds, and % of it: its GEMMs run
//                                               between the steps, and both sides are medians.
//                                               Where OpenBLAS is found, also its time for these
//                                               GEMMs over ours
// Counters: tokens/s, the optimizer's part of a step (median), and % of the FP32 GEMM rate measured
// in the same process (formula: train/reports/gemm_rate.h).
#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <benchmark/benchmark.h>
#include <omp.h>

#include "core/random.h"
#include "device/profiling.h"
#include "gpu_report/benchmarked_rule.h"
#include "gpu_report/samples.h"
#include "machine_limits.h"
#include "run_benchmarks.h"
#include "shapes.h"
#include "step_bound.h"
#ifdef MPT_WITH_OPENBLAS
#include "openblas_gemm.h"
#endif
#include "config/run_device.h"
#include "train/reports/gemm_rate.h"
#include "train/step/device_step.h"
#include "train/step/training_model.h"

namespace mpt {
namespace {

bool breakdown = false, with_bound = false;  // requested by options

struct Regime {
  std::string name;
  WeightFormat weights;
  ComputeFormat compute;
  Bf16Dot dot = Bf16Dot::kAuto;

  [[nodiscard]] Format others() const {
    return weights == WeightFormat::kF32 ? Format::kF32 : Format::kBF16;
  }
};

const std::array<Regime, 8> kRegimes{
    {{"fp32", WeightFormat::kF32, ComputeFormat::kF32},
     {"bf16", WeightFormat::kBF16, ComputeFormat::kBF16},
     {"bf16-fp8", WeightFormat::kBF16, ComputeFormat::kFp8},
     {"block_fp8-bf16", WeightFormat::kBlockFp8, ComputeFormat::kBF16},
     {"block_fp8-fp8", WeightFormat::kBlockFp8, ComputeFormat::kFp8},
     {"nvfp4-bf16", WeightFormat::kNvfp4, ComputeFormat::kBF16},
     {"nvfp4-fp8", WeightFormat::kNvfp4, ComputeFormat::kFp8},
     {"mxfp8-bf16", WeightFormat::kMxfp8, ComputeFormat::kBF16}}};

// The regimes above, and some also with each other way to sum products of BF16 numbers.
std::vector<Regime> regimes() {
  std::vector<Regime> all(kRegimes.begin(), kRegimes.end());
  for (const Bf16Dot dot : {Bf16Dot::kFma, Bf16Dot::kAvx512Bf16, Bf16Dot::kAmxBf16})
    for (const Regime& regime : kRegimes)
      if (why_no_bf16_dot(dot).empty() && dot != fastest_bf16_dot() &&
          (regime.name == "bf16" || regime.name == "block_fp8-fp8"))
        all.push_back(
            {fmt::format("{}+{}", regime.name, name_of(dot)), regime.weights, regime.compute, dot});
  return all;
}

RunConfig config_of(const Shape& shape, const Regime& regime, std::string_view rule) {
  RunConfig config;
  config.name = shape.name;
  config.model = shape.model();
  config.batch = {
      .seq_len = shape.seq_len, .tokens_per_step = shape.tokens(), .micro_batch_rows = 0};
  config.precision.weights = regime.weights;
  config.precision.compute = regime.compute;
  config.precision.optimizer_state = config.precision.gradient = regime.others();
  config.optimizer.rule = benchmarked_rule(rule, {.additive = 1e-3, .multiplicative = 1e-4});
  config.train.steps = 1000;
  config.device = {.type = DeviceType::kCpu, .bf16_dot = regime.dot};
  return config;
}

std::vector<int32_t> random_tokens(const Shape& shape, uint32_t row) {
  const RandomCounter counter{1, 0, row, 0, kSyntheticStream};
  std::vector<int32_t> tokens(size_t(shape.tokens()));
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = int32_t(uint64_t{counter.word(uint32_t(i))} * uint64_t(shape.vocab) >> 32);
  return tokens;
}

// A model with random tokens for training.
class DeviceStep {
 public:
  DeviceStep(const Shape& shape, const RunConfig& config, Device& device)
      : device_(&device),
        allocator_(device.make_allocator()),
        model_(config, device, *allocator_),
        tokens_(random_tokens(shape, 0)),
        targets_(random_tokens(shape, 1)) {
    initialize_weights(model_.weights, 0.02, 1, device);
    model_.weights_changed();
    model_.optimizer.weights_initialized();
  }
  void run() {
    model_.llama.forward_backward({tokens_, targets_}, {.gradient_scale = 1 / float(tokens_.size()),
                                                        .accumulate = Accumulate::kNo});
    model_.llama.finish_gradients();
    const double norm = model_.optimizer.grad_norm();
    optimizer_seconds_.push_back(seconds_of(*device_, [&] {
      model_.optimizer.step({.t = ++t_, .grad_scale = clip_scale(1.0, norm)});
    }));
    model_.weights_changed();
  }
  // Median over the updates since forget_seconds().
  [[nodiscard]] double optimizer_seconds() const { return median_of(optimizer_seconds_); }
  void forget_seconds() { optimizer_seconds_.clear(); }

 private:
  Device* device_;
  std::unique_ptr<Allocator> allocator_;
  TrainingModel model_;
  std::vector<int32_t> tokens_, targets_;
  int64_t t_ = kStepsBefore;
  std::vector<double> optimizer_seconds_;
};

// The bound that the step of a shape is compared with: measured between the steps, medians of both.
class Bound {
 public:
  Bound(const Shape& shape, Device& device, std::vector<GemmCall> gemms)
      : shape_(shape), gemms_(std::move(gemms)), cold_(device, gemms_) {
    cold_.seconds(gemms_);  // touches all memory for the first time
  }
  void measure() {
    gemm_seconds_.push_back(cold_.seconds(gemms_));
#ifdef MPT_WITH_OPENBLAS
    openblas_seconds_.push_back(cold_.seconds(gemms_, openblas_));
#endif
    for (int i = 0; i < 3; ++i) large_seconds_.push_back(cold_.seconds(std::array{large_gemm()}));
  }
  void count(benchmark::State& state, const std::vector<double>& steps) const {
    static const MachineLimits limits = measured_machine_limits(omp_get_max_threads());
    double bytes = 0;
    for (const PassBytes& pass : fused_passes(shape_.model(), shape_.tokens())) bytes += pass.bytes;
    const double rate = flops_of(large_gemm()) / median_of(large_seconds_),
                 attention =
                     attention_flops(shape_.model(), shape_.tokens(), shape_.seq_len) / rate,
                 gemms = median_of(gemm_seconds_), passes = bytes / limits.stream_bytes_per_second;
    state.counters["GEMMs ms"] = 1e3 * gemms;
    state.counters["attention ms"] = 1e3 * attention;
    state.counters["passes ms"] = 1e3 * passes;
    if (!openblas_seconds_.empty())
      state.counters["x_gemms_of_openblas"] = median_of(openblas_seconds_) / gemms;
    state.counters["%bound"] = 100 * (gemms + attention + passes) / median_of(steps);
  }

 private:
  const Shape& shape_;
  std::vector<GemmCall> gemms_;
  ColdGemms cold_;
#ifdef MPT_WITH_OPENBLAS
  OpenBlasGemm openblas_{omp_get_max_threads()};
#endif
  std::vector<double> gemm_seconds_, openblas_seconds_, large_seconds_;
};

// Self times by operation, over all ranges of a name, forward and backward.
void count_operations(benchmark::State& state, const Profile& profile) {
  std::map<std::string, double> seconds;
  for (const Profile::Node& node : profile.nodes())
    seconds[std::string(node.name)] += node.self_seconds;
  for (const auto& [name, sum] : seconds)
    state.counters[fmt::format("{}: ms", name)] = 1e3 * sum / double(state.iterations());
}

// Runs until no memory work is left: where a virtual machine returns unused memory to its host, an
// earlier benchmark's memory is returned two seconds later, at the expense of whatever runs then.
void warm_up(DeviceStep& step) {
  constexpr std::chrono::seconds kLeast{4};
  const auto begin = std::chrono::steady_clock::now();
  do step.run();
  while (std::chrono::steady_clock::now() - begin < kLeast);
}

void training_step(benchmark::State& state, const Shape& shape, const Regime& regime,
                   std::string_view rule) {
  const RunConfig config = config_of(shape, regime, rule);
  const std::unique_ptr<Device> device = make_device(config.device);
  const double limit = measured_gemm_rate(*device);
  Profile profile;
  RecordingDevice recording(*device);
  ProfilingDevice profiling(recording, profile);
  DeviceStep step(shape, config, breakdown ? static_cast<Device&>(profiling) : recording);
  step.run();
  const std::vector<GemmCall> gemms = recording.take_gemms();
  std::optional<Bound> bound;
  if (with_bound && regime.weights == WeightFormat::kF32 && rule == "adamw") {
    bound.emplace(shape, *device, gemms);
  }
  warm_up(step);
  std::vector<double> seconds;
  profile.clear();
  step.forget_seconds();
  for (auto _ : state) {
    seconds.push_back(seconds_of(*device, [&] { step.run(); }));
    if (!bound) continue;
    state.PauseTiming();
    bound->measure();
    state.ResumeTiming();
  }
  using benchmark::Counter;
  const auto n = double(shape.tokens());
  state.counters["tokens/s"] = Counter(n, Counter::kIsIterationInvariantRate);
  const double flops = n * flops_per_token(config.model, shape.seq_len);
  state.counters["%limit"] = Counter(100 * flops / limit, Counter::kIsIterationInvariantRate);
  state.counters["optimizer ms"] = 1e3 * step.optimizer_seconds();
  if (bound) bound->count(state, seconds);
  if (breakdown) count_operations(state, profile);
}

void register_all() {
  for (const Shape& shape : kShapes)
    for (const Regime& regime : regimes())
      for (const char* rule : {"adamw", "m_plus_adam"})
        benchmark::RegisterBenchmark(fmt::format("{}/{}/{}", shape.name, regime.name, rule).c_str(),
                                     [&shape, regime, rule](benchmark::State& state) {
                                       training_step(state, shape, regime, rule);
                                     })
            ->Unit(benchmark::kMillisecond)
            ->UseRealTime();
}

// Returns whether the option, which is not one of the library's, is present, and removes it.
bool taken(int& argc, char** argv, std::string_view option) {
  char** const end = std::remove(argv + 1, argv + argc, option);
  const bool found = end != argv + argc;
  argc = int(end - argv);
  return found;
}

}  // namespace
}  // namespace mpt

int main(int argc, char** argv) {
  mpt::register_all();
  mpt::breakdown = mpt::taken(argc, argv, "--breakdown");
  mpt::with_bound = mpt::taken(argc, argv, "--bound");
  return mpt::run_benchmarks(argc, argv, 0.5);
}
