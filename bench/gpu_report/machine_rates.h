// Achieved limits of a machine: copies within its memory, and GEMMs of large matrices.
#pragma once

#include <string>

#include "core/json/json_parse.h"
#include "device/device.h"
#include "samples.h"

namespace mpt {

struct MachineSize {
  int64_t gemm = 0;        // edge of the square matrices
  int64_t copy_bytes = 0;  // of each of the two buffers
};
// Large enough for the backend's peak; small enough for a CPU.
MachineSize default_size(Device& device);

enum class GemmKind : uint8_t { kF32, kTf32, kBF16, kFp8, kFp8Split };
template <>
struct EnumNames<GemmKind> {
  static constexpr std::array<std::string_view, 5> kNames{"fp32", "tf32", "bf16", "fp8",
                                                          "fp8_split"};
};

struct Rate {
  std::vector<double> per_second;  // one per block
  std::string formula;

  [[nodiscard]] double median() const { return median_of(per_second); }
};
Json to_json(const Rate& rate, const char* unit);

// Bytes read and written per second.
Rate copy_rate(Device& device, int64_t bytes, const Effort& effort);
// FLOP per second, with normally distributed operands and results in bf16 (fp32 for fp32 operands).
Rate gemm_rate(Device& device, GemmKind kind, int64_t size, const Effort& effort);

Json measure_machine(Device& device, const MachineSize& size, const Effort& effort);

}  // namespace mpt
