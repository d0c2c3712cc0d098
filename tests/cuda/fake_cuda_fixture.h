// A test of the fake GPU itself, with its own kernels.
#pragma once

#include <vector>

#include "cuda/gpu.h"
#include "device/cuda/cuda_exec.cuh"

namespace mpt::test {

class FakeCudaTest : public GpuTest {
 protected:
  template <class T>
  T* device_array(const std::vector<T>& values) {
    auto* const data =
        reinterpret_cast<T*>(gpu_.allocator().bytes({"data"}, int64_t(values.size() * sizeof(T))));
    gpu_.write(data, values.data(), int64_t(values.size() * sizeof(T)));
    return data;
  }
  template <class T>
  std::vector<T> host_array(const T* data, size_t count) {
    std::vector<T> values(count);
    gpu_.read(values.data(), data, int64_t(count * sizeof(T)));
    return values;
  }
  LaunchShape shape(int64_t blocks, int threads, int64_t shared_bytes = 0) {
    return {.blocks = blocks,
            .threads = threads,
            .stream = gpu_.stream(),
            .shared_bytes = shared_bytes};
  }

  Gpu gpu_;
};

}  // namespace mpt::test
