// The reader of a device in host memory: copies.
#include "device/device_reader.h"

#include <memory>
#include <vector>

#include "device/device.h"

namespace mpt {
namespace {

class HostReader final : public DeviceReader {
 public:
  explicit HostReader(Device& device) : device_(device) {}
  void begin() override { device_.synchronize(); }
  void read(std::span<const Tensor> blocks, const Take& take) override {
    for (const Tensor& block : blocks) {
      const auto bytes = static_cast<size_t>(block.elements() * size_of(block.dtype));
      if (buffer_.size() < bytes) buffer_.resize(bytes);
      device_.download(block, buffer_.data());
      take(std::span(buffer_).first(bytes));
    }
  }

 private:
  Device& device_;
  std::vector<std::byte> buffer_;
};

}  // namespace

std::unique_ptr<DeviceReader> Device::make_reader() { return std::make_unique<HostReader>(*this); }

}  // namespace mpt
