// Copies a host matrix to a device, padding between rows included, and back.
#pragma once

#include <cstring>

#include "device/device.h"
#include "support/host_matrix.h"

namespace mpt::test {

class DeviceMatrix {
 public:
  DeviceMatrix(Device& device, Allocator& allocator, const HostMatrix& host)
      : device_(device), shape_(host), view_(host) {
    view_.data = allocator.bytes({"data"}, bytes());
    device_.upload(host.view().data, all());
  }
  operator Tensor() const { return view_; }  // NOLINT: a matrix stands wherever a view does

  [[nodiscard]] HostMatrix fetched() const {
    HostMatrix host = shape_;
    device_.download(all(), host.view().data);
    return host;
  }

 private:
  [[nodiscard]] int64_t bytes() const { return static_cast<int64_t>(shape_.bytes().size()); }
  [[nodiscard]] Tensor all() const { return {view_.data, DType::kU8, 1, bytes(), bytes()}; }

  Device& device_;
  HostMatrix shape_;
  Tensor view_;
};

}  // namespace mpt::test
