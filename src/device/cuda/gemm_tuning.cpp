#include "device/cuda/gemm_tuning.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include <cuda_runtime.h>
#include <spdlog/spdlog.h>

#include "core/bf16.h"
#include "core/check.h"
#include "core/float_format.h"
#include "core/normal.h"
#include "core/random.h"
#include "core/text/units.h"
#include "device/cuda/cuda_handles.h"

namespace mpt {

// --- keys ----------------------------------------------------------------------------------------

namespace {

std::string name_of_operand(const GemmOperand& x) {
  return fmt::format("{}[{},{}]{}{}", name_of(x.dtype), x.rows, x.cols,
                     x.stride == x.cols ? "" : fmt::format(" {} apart", x.stride),
                     x.alignment == GemmOperand::kVectorBytes ? "" : " unaligned");
}

const char* mark_of(Transpose transpose) { return transpose == Transpose::kYes ? "^T" : ""; }

const char* mark_of(Multiply multiply) {
  switch (multiply) {
    case Multiply::kTf32:
      return " by TF32";
    case Multiply::kFastFp8:
      return " by fast FP8";
    default:
      return "";
  }
}

Multiply multiply_of(const GemmCall& call) {
  const bool tf32 = call.multiply == Multiply::kTf32 && call.a.dtype == DType::kF32;
  const bool fast = call.multiply == Multiply::kFastFp8 && is_fp8(call.a.dtype);
  return tf32 || fast ? call.multiply : Multiply::kFull;
}

}  // namespace

GemmOperand GemmOperand::of(const Tensor& tensor) {
  const auto address = reinterpret_cast<uintptr_t>(tensor.data);
  return {.dtype = tensor.dtype,
          .rows = tensor.rows,
          .cols = tensor.cols,
          .stride = std::max(tensor.stride, tensor.cols),  // meaningless for a single row
          .alignment = address % kVectorBytes == 0 ? kVectorBytes : size_of(tensor.dtype)};
}

GemmKey GemmKey::of(const GemmCall& call) {
  return {.a = GemmOperand::of(call.a),
          .b = GemmOperand::of(call.b),
          .d = GemmOperand::of(call.d),
          .transpose_a = call.transpose_a,
          .transpose_b = call.transpose_b,
          .accumulate = call.accumulate,
          .multiply = multiply_of(call)};
}

std::string GemmKey::name() const {
  return fmt::format("{}{} x {}{} -> {}{}{}", name_of_operand(a), mark_of(transpose_a),
                     name_of_operand(b), mark_of(transpose_b), name_of_operand(d),
                     accumulate == Accumulate::kYes ? " added" : "", mark_of(multiply));
}

void check_supported(const GemmKey& key) {
  const DType a = key.a.dtype, b = key.b.dtype, d = key.d.dtype;
  check(key.fp8() || (a == b && (a == DType::kBF16 || d == DType::kF32)),
        "unsupported GEMM of {} and {} into {} on a GPU; expected two fp32 into fp32, or two bf16 "
        "or two FP8 into fp32 or bf16",
        name_of(a), name_of(b), name_of(d));
  check(!key.fp8() || (key.transpose_a == Transpose::kNo && key.transpose_b == Transpose::kYes),
        "{} on a GPU: FP8 operands must be [m,k] and [n,k]^T", key.name());
  check(!key.fp8() || key.accumulate == Accumulate::kNo || d == DType::kF32,
        "{} on a GPU: FP8 products are added to fp32 only; cuBLASLt does not round a sum in bf16 "
        "once",
        key.name());
}

// --- timing --------------------------------------------------------------------------------------

namespace {

constexpr int kRounds = 5;  // rounds per median
constexpr int kBurst = 4;   // GEMMs per measurement, to amortise the host's overhead
constexpr double kClearlyFaster = 0.97, kClearlyFasterUs = 1.0;
constexpr int64_t kPatternElements = int64_t{1} << 18;

using Buffer = Owned<void*, cudaFree>;

// Null if there is not enough memory.
Buffer buffer_for(const GemmOperand& operand) {
  void* address = nullptr;
  const auto size = static_cast<size_t>(operand.bytes() + GemmOperand::kVectorBytes);
  const cudaError_t status = cudaMalloc(&address, size);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check_cuda(status, "cudaMalloc");
  return Buffer(address);
}

template <class T, class Encode>
std::vector<std::byte> encoded(const std::vector<float>& values, Encode encode) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    const T code = encode(values[i]);
    memcpy(bytes.data() + i * sizeof(T), &code, sizeof code);
  }
  return bytes;
}

// Normally distributed values of type `dtype`.
std::vector<std::byte> random_pattern(DType dtype) {
  std::vector<float> values(static_cast<size_t>(kPatternElements));
  fill_normals({.seed = 0,
                .tensor = static_cast<uint32_t>(dtype),
                .row = 0,
                .step = 0,
                .stream = kSyntheticStream},
               1.0, kPatternElements, values.data());
  switch (dtype) {
    case DType::kF32:
      return encoded<float>(values, [](float x) { return x; });
    case DType::kBF16:
      return encoded<bf16>(values, [](float x) { return bf16_nearest(x); });
    case DType::kE4M3:
      return encoded<uint8_t>(values, [](float x) { return round_to<mpt::kE4M3>(x, Nearest{}); });
    case DType::kE5M2:
      return encoded<uint8_t>(values, [](float x) { return round_to<mpt::kE5M2>(x, Nearest{}); });
    default:
      throw LogicError(fmt::format("no random values for {}", name_of(dtype)));
  }
}

// Fills with the repeated pattern; each copy doubles the filled part.
void fill_randomly(std::byte* target, const GemmOperand& operand, cudaStream_t stream) {
  const std::vector<std::byte> pattern = random_pattern(operand.dtype);
  const int64_t size = operand.bytes();
  int64_t filled = std::min<int64_t>(size, static_cast<int64_t>(pattern.size()));
  check_cuda(cudaMemcpyAsync(target, pattern.data(), static_cast<size_t>(filled),
                             cudaMemcpyHostToDevice, stream),
             "cudaMemcpyAsync");
  check_cuda(cudaStreamSynchronize(stream),
             "cudaStreamSynchronize");  // the pattern is freed on return
  for (int64_t count = 0; filled < size; filled += count) {
    count = std::min(filled, size - filled);
    check_cuda(cudaMemcpyAsync(target + filled, target, static_cast<size_t>(count),
                               cudaMemcpyDeviceToDevice, stream),
               "cudaMemcpyAsync");
  }
}

CudaEvent make_event() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreate(&event), "cudaEventCreate");
  return CudaEvent(event);
}

class Stopwatch {
 public:
  explicit Stopwatch(cudaStream_t stream) : stream_(stream) {}
  void start() { check_cuda(cudaEventRecord(start_.get(), stream_), "cudaEventRecord"); }
  // Microseconds since start().
  double stop() {
    check_cuda(cudaEventRecord(stop_.get(), stream_), "cudaEventRecord");
    check_cuda(cudaEventSynchronize(stop_.get()), "cudaEventSynchronize");
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, start_.get(), stop_.get()),
               "cudaEventElapsedTime");
    return double(milliseconds) * 1e3;
  }

 private:
  cudaStream_t stream_;
  CudaEvent start_ = make_event(), stop_ = make_event();
};

struct Buffers {
  Buffer a, b, d;
  [[nodiscard]] bool complete() const { return a != nullptr && b != nullptr && d != nullptr; }
};

// A start address aligned no better than the operand.
std::byte* start_in(const Buffer& buffer, const GemmOperand& operand) {
  const int64_t offset = operand.alignment == GemmOperand::kVectorBytes ? 0 : operand.alignment;
  return static_cast<std::byte*>(buffer.get()) + offset;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Median microseconds of each candidate; infinite if it cannot run. Candidates alternate, so that
// clock changes affect all of them.
std::vector<double> times_of(const GemmTuningCase& tuned, const GemmAddresses& addresses,
                             cudaStream_t stream) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> samples(tuned.candidates);
  std::vector<bool> runs(tuned.candidates);
  Stopwatch stopwatch(stream);
  for (size_t i = 0; i < tuned.candidates; ++i)
    runs[i] = tuned.run(addresses, i);  // warm-up: loads the kernel
  for (int round = 0; round < kRounds; ++round)
    for (size_t i = 0; i < tuned.candidates; ++i) {
      if (!runs[i]) continue;
      stopwatch.start();
      for (int repeat = 0; repeat < kBurst; ++repeat) runs[i] = tuned.run(addresses, i) && runs[i];
      samples[i].push_back(stopwatch.stop() / kBurst);
    }
  std::vector<double> medians(tuned.candidates, kNever);
  for (size_t i = 0; i < tuned.candidates; ++i)
    if (runs[i]) medians[i] = median(samples[i]);
  return medians;
}

}  // namespace

size_t first_of_the_fastest(std::span<const double> microseconds) {
  const double fastest = *std::ranges::min_element(microseconds);
  const double enough = std::max(fastest / kClearlyFaster, fastest + kClearlyFasterUs);
  return static_cast<size_t>(
      std::ranges::find_if(microseconds, [&](double us) { return us <= enough; }) -
      microseconds.begin());
}

std::optional<GemmTuningResult> time_candidates(const GemmTuningCase& tuned, CUstream_st* stream) {
  const GemmKey& key = tuned.key;
  const Buffers buffers{buffer_for(key.a), buffer_for(key.b), buffer_for(key.d)};
  if (!buffers.complete()) {
    spdlog::warn(
        "GEMM {}: not enough memory to time its algorithms on {} of operands; using cuBLASLt's "
        "first choice",
        key.name(), format_bytes(double(key.a.bytes() + key.b.bytes() + key.d.bytes())));
    return std::nullopt;
  }
  std::byte* const a = start_in(buffers.a, key.a);
  std::byte* const b = start_in(buffers.b, key.b);
  std::byte* const d = start_in(buffers.d, key.d);
  fill_randomly(a, key.a, stream);
  fill_randomly(b, key.b, stream);
  fill_randomly(d, key.d, stream);
  const std::vector<double> times = times_of(tuned, {a, b, d}, stream);
  const size_t best = first_of_the_fastest(times);
  return GemmTuningResult{.best = best, .first_us = times[0], .best_us = times[best]};
}

}  // namespace mpt
