// Benchmarks of single operations: operands are made once, a call is repeated, and its rate is
// reported next to the machine's limit.
//
//   add_operation("rope/A/fp32",
//                 [](Workbench& w) { return w.in_turn(bytes, [&] { ... return call; }); });
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <omp.h>

#include "core/bf16.h"
#include "core/normal.h"
#include "core/random.h"
#include "device/backends.h"
#include "machine_limits.h"
#include "model/llama_ops.h"
#include "run_benchmarks.h"

namespace mpt {

// A repeated call, and the least bytes it moves between memory and processor, or the FLOPs it
// computes; 0: not the limit.
struct Operation {
  std::function<void()> call;
  double bytes = 0, flops = 0;
};

// Device, operations and the memory for their operands.
class Workbench {
 public:
  Workbench()
      : device_(make_cpu_device(0)),
        allocator_(device_->make_allocator()),
        ops_(make_ops<LlamaOps>(device_->stream())) {}

  // Zeros that have been written, because pages never written share one page of zeros.
  Tensor zeros(DType type, int64_t rows, int64_t cols) {
    const Tensor tensor = allocator_->tensor(kScratchMemory, type, rows, cols);
    memset(tensor.data, 0, size_t(tensor.bytes()));
    return tensor;
  }
  Tensor normals(DType type, int64_t rows, int64_t cols) { return filled(zeros(type, rows, cols)); }
  // fp8: codes without NaN.
  static Tensor filled(const Tensor& tensor);

  // Uses more sets of operands than fit in a cache, in turn: in a training step too, an operation's
  // inputs have long left the cache. `make` allocates one set and returns the call.
  template <class F>
  Operation in_turn(double bytes, const F& make) {
    const auto sets = 1 + int64_t(double(stream_array_bytes()) / 2 / bytes);
    std::vector<std::function<void()>> calls;
    for (int64_t i = 0; i < sets; ++i) calls.emplace_back(make());
    for (const auto& call : calls) call();  // first touches are not measured
    const auto call = [calls = std::move(calls), next = size_t{0}]() mutable {
      calls[next]();
      next = next + 1 == calls.size() ? 0 : next + 1;
    };
    return {.call = call, .bytes = bytes};
  }

  Device& device() { return *device_; }
  Allocator& allocator() { return *allocator_; }
  LlamaOps& ops() { return *ops_; }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Allocator> allocator_;
  std::unique_ptr<LlamaOps> ops_;
};

// Repeats a few thousand different numbers: the measurement does not depend on more.
inline Tensor Workbench::filled(const Tensor& tensor) {
  constexpr int64_t kPeriod = 4093;
  static const std::vector<float> pattern = [] {
    std::vector<float> values(kPeriod);
    fill_normals({.seed = 0, .tensor = 0, .row = 0, .step = 0, .stream = kSyntheticStream}, 1.0,
                 kPeriod, values.data());
    return values;
  }();
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const float x = pattern[size_t(i % kPeriod)];
    if (tensor.dtype == DType::kF32)
      tensor.as<float>()[i] = x;
    else if (tensor.dtype == DType::kBF16)
      tensor.as<bf16>()[i] = bf16_nearest(x);
    else
      tensor.data[i] = std::byte(i * 37 % 0x60 | (x < 0 ? 0x80 : 0));
  }
  return tensor;
}

// The machine's current limit for the operation, with as many threads: bytes or FLOP per second.
inline double limit_of(const Operation& operation) {
  constexpr double kSeconds = 0.15;
  static MemoryStream stream(omp_get_max_threads());
  return operation.flops > 0 ? measured_fma_flops(omp_get_max_threads(), kSeconds)
                             : stream.bytes_per_second(kSeconds);
}

struct Prepared {
  Operation operation;
  double limit = 0;
};

// Google Benchmark calls a function again with more iterations; its operands stay until another
// function asks for its own.
inline Prepared& prepared(const std::string& name,
                          const std::function<Operation(Workbench&)>& make) {
  static std::string owner;
  static std::unique_ptr<Workbench> bench;
  static Prepared prepared;
  if (owner != name) {
    prepared = {};
    bench = nullptr;  // before the next one allocates
    bench = std::make_unique<Workbench>();
    prepared.operation = make(*bench);
    prepared.limit = limit_of(prepared.operation);
    owner = name;
  }
  return prepared;
}

// Counters: GB/s or GFLOP/s, and % of the machine's limit for these, measured just before.
inline void add_operation(const std::string& name,
                          const std::function<Operation(Workbench&)>& make) {
  const auto run = [name, make](benchmark::State& state) {
    const auto& [operation, limit] = prepared(name, make);
    for (auto _ : state) operation.call();
    const bool computes = operation.flops > 0;
    const double work = computes ? operation.flops : operation.bytes;
    constexpr auto kRate = benchmark::Counter::kIsIterationInvariantRate;
    state.counters[computes ? "GFLOP/s" : "GB/s"] = {work * 1e-9, kRate};
    state.counters["%limit"] = {100 * work / limit, kRate};
  };
  benchmark::RegisterBenchmark(name.c_str(), run)->Unit(benchmark::kMicrosecond)->UseRealTime();
}

inline int run_operations(int argc, char** argv) {
  benchmark::AddCustomContext("threads", fmt::format("{}", omp_get_max_threads()));
  return run_benchmarks(argc, argv, 0.2);
}

}  // namespace mpt
