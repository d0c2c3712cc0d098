#include "machine_rates.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "device_probe.h"

namespace mpt {
namespace {

struct Operands {
  DType element, result;
  Multiply multiply;
};

Operands operands_of(GemmKind kind) {
  switch (kind) {
    case GemmKind::kF32:
      return {DType::kF32, DType::kF32, Multiply::kFull};
    case GemmKind::kTf32:
      return {DType::kF32, DType::kF32, Multiply::kTf32};
    case GemmKind::kBF16:
      return {DType::kBF16, DType::kBF16, Multiply::kFull};
    case GemmKind::kFp8:
      return {DType::kE4M3, DType::kBF16, Multiply::kFastFp8};
    case GemmKind::kFp8Split:
      break;
  }
  return {DType::kE4M3, DType::kBF16, Multiply::kFull};
}

}  // namespace

MachineSize default_size(Device& device) {
  if (device.backend() == Backend::kCpu) return {.gemm = 1024, .copy_bytes = int64_t{256} << 20};
  return {.gemm = 8192, .copy_bytes = int64_t{4} << 30};
}

Json to_json(const Rate& rate, const char* unit) {
  Json json = summary_of(rate.per_second);
  json["unit"] = unit;
  json["formula"] = rate.formula;
  return json;
}

Rate copy_rate(Device& device, int64_t bytes, const Effort& effort) {
  const std::unique_ptr<Allocator> allocator = device.make_allocator();
  const std::unique_ptr<DeviceProbe> probe = make_probe(device);
  constexpr int64_t kCols = 1 << 14;
  const int64_t rows = std::max<int64_t>(bytes / (kCols * 4), 1), copied = rows * kCols * 4;
  const Tensor source = allocator->tensor(kScratchMemory, DType::kF32, rows, kCols);
  const Tensor target = allocator->tensor(kScratchMemory, DType::kF32, rows, kCols);
  fill_with_normals(source, 1, device);
  Rate rate{.per_second = {},
            .formula = fmt::format(
                "2 x {} bytes (read and written) / time of a copy inside device memory", copied)};
  for (const double seconds :
       seconds_per_run(device, effort, [&] { probe->copy(target.data, source.data, copied); }))
    rate.per_second.push_back(2.0 * double(copied) / seconds);
  return rate;
}

Rate gemm_rate(Device& device, GemmKind kind, int64_t size, const Effort& effort) {
  const Operands operands = operands_of(kind);
  const std::unique_ptr<Allocator> allocator = device.make_allocator();
  const auto matrix = [&](DType dtype) {
    return allocator->tensor(kScratchMemory, dtype, size, size);
  };
  const GemmCall call{.a = matrix(operands.element),
                      .b = matrix(operands.element),
                      .d = matrix(operands.result),
                      .transpose_b = Transpose::kYes,
                      .multiply = operands.multiply};
  fill_with_normals(call.a, 1, device);
  fill_with_normals(call.b, 2, device);
  device.gemm().reserve(*allocator, std::array{call});
  Rate rate{
      .per_second = {},
      .formula = fmt::format(
          "2 x {0} x {0} x {0} / time of a GEMM of random {1} matrices, FP32 sums, {2} results",
          size, name_of(operands.element), name_of(operands.result))};
  for (const double seconds : seconds_per_run(device, effort, [&] { device.gemm().run(call); }))
    rate.per_second.push_back(2.0 * double(size) * double(size) * double(size) / seconds);
  return rate;
}

Json measure_machine(Device& device, const MachineSize& size, const Effort& effort) {
  const std::unique_ptr<DeviceProbe> probe = make_probe(device);
  Json json{{"device", device.name()},
            {"libraries", device.libraries()},
            {"memory_bytes", device.memory_bytes()},
            {"driver", probe->description()},
            {"copy", to_json(copy_rate(device, size.copy_bytes, effort), "bytes/s")}};
  for (const GemmKind kind :
       {GemmKind::kBF16, GemmKind::kFp8, GemmKind::kFp8Split, GemmKind::kTf32, GemmKind::kF32})
    json["gemms"][std::string(name_of(kind))] =
        to_json(gemm_rate(device, kind, size.gemm, effort), "FLOP/s");
  return json;
}

}  // namespace mpt
