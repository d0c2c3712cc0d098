// The probe of a GPU.
#include <cuda_runtime.h>

#include "device/cuda/cuda_handles.h"
#include "device_probe.h"

namespace mpt {
namespace {

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

class CudaProbe final : public DeviceProbe {
 public:
  explicit CudaProbe(Device& device) : stream_(stream_of(device.stream())) {}

  void copy(std::byte* target, const std::byte* source, int64_t bytes) override {
    check_cuda(cudaMemcpyAsync(target, source, size_t(bytes), cudaMemcpyDeviceToDevice, stream_),
               "cudaMemcpyAsync");
  }
  [[nodiscard]] int64_t memory_in_use() override {
    size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return int64_t(total - free);
  }
  [[nodiscard]] std::string memory_meaning() const override {
    return "GPU memory in use by all processes (cudaMemGetInfo)";
  }
  [[nodiscard]] Json description() override {
    int index = 0, driver = 0, runtime = 0;
    cudaDeviceProp properties{};
    check_cuda(cudaGetDevice(&index), "cudaGetDevice");
    check_cuda(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
    check_cuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    check_cuda(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    return {{"gpu", properties.name},
            {"compute_capability", fmt::format("{}.{}", properties.major, properties.minor)},
            {"multiprocessors", properties.multiProcessorCount},
            {"memory_bytes", properties.totalGlobalMem},
            {"l2_bytes", properties.l2CacheSize},
            {"driver_supports_cuda", version_text(driver)},
            {"cuda_runtime", version_text(runtime)}};
  }

 private:
  cudaStream_t stream_;
};

}  // namespace

std::unique_ptr<DeviceProbe> make_cuda_probe(Device& device) {
  return std::make_unique<CudaProbe>(device);
}

}  // namespace mpt
