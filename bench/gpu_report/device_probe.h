// What measuring needs of a device beyond what training needs: copies inside its memory, how much
// of it is in use, and what it is.
#pragma once

#include <memory>
#include <string>

#include "core/json/json_parse.h"
#include "device/device.h"

namespace mpt {

class DeviceProbe {
 public:
  virtual ~DeviceProbe() = default;
  // Enqueues the copy of that many bytes from one place in device memory to another.
  virtual void copy(std::byte* target, const std::byte* source, int64_t bytes) = 0;
  // By this process, or by all where the backend does not tell them apart; bytes.
  [[nodiscard]] virtual int64_t memory_in_use() = 0;
  // What memory_in_use() counts, in words.
  [[nodiscard]] virtual std::string memory_meaning() const = 0;
  // Driver, versions, clocks, as far as there are any.
  [[nodiscard]] virtual Json description() = 0;
};

std::unique_ptr<DeviceProbe> make_probe(Device& device);
#ifdef MPT_WITH_CUDA
std::unique_ptr<DeviceProbe> make_cuda_probe(Device& device);
#endif

// The device that is named "cpu" or "cuda", as a config's device.type would have it.
std::unique_ptr<Device> device_named(const std::string& name);

// Fills a tensor of fp32, bf16, e4m3 or e5m2 with normally distributed numbers. Rows repeat a few
// drawn ones, each turned by another distance: enough that no two GEMMs are of the same
// operands.
void fill_with_normals(const Tensor& tensor, uint32_t seed, Device& device);

}  // namespace mpt
