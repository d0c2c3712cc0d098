// A test on a CUDA device, skipped if there is none.
#pragma once

#include <memory>

#include "cuda/gpu.h"
#include "device/backends.h"
#include "device/cuda/cuda_gemm.h"

namespace mpt::test {

class CudaDeviceTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) use({.tuning = GemmTuning::kOff});
  }
  void use(const CudaDeviceOptions& options) {
    allocator_.reset();
    device_ = make_cuda_device(options);
    allocator_ = device_->make_allocator();
  }
  [[nodiscard]] CudaGemm& gemm() { return dynamic_cast<CudaGemm&>(device_->gemm()); }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Allocator> allocator_;  // freed before the device
};

}  // namespace mpt::test
