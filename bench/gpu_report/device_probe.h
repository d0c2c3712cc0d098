// Device functions that measuring needs and training does not: copies within device memory, memory
// in use, and a description.
#pragma once

#include <memory>
#include <string>

#include "core/json/json_parse.h"
#include "device/device.h"

namespace mpt {

class DeviceProbe {
 public:
  virtual ~DeviceProbe() = default;
  // Enqueues a copy of `bytes` bytes within device memory.
  virtual void copy(std::byte* target, const std::byte* source, int64_t bytes) = 0;
  // Bytes used by this process, or by all processes where the backend does not distinguish them.
  [[nodiscard]] virtual int64_t memory_in_use() = 0;
  // Describes what memory_in_use() counts.
  [[nodiscard]] virtual std::string memory_meaning() const = 0;
  // Driver, versions and clocks, where available.
  [[nodiscard]] virtual Json description() = 0;
};

std::unique_ptr<DeviceProbe> make_probe(Device& device);
#ifdef MPT_WITH_CUDA
std::unique_ptr<DeviceProbe> make_cuda_probe(Device& device);
#endif

// The device named "cpu" or "cuda", as in a config's device.type.
std::unique_ptr<Device> device_named(const std::string& name);

// Fills a tensor of fp32, bf16, e4m3 or e5m2 with normally distributed numbers. Rows repeat a few
// drawn ones, each rotated by a different distance: enough that no two GEMMs have the same
// operands.
void fill_with_normals(const Tensor& tensor, uint32_t seed, Device& device);

}  // namespace mpt
