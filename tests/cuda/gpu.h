// The GPU of a test: the real one, or the fake if the test was compiled for that.
#pragma once

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "device/cuda/cuda_handles.h"
#include "device/memory.h"
#ifdef MPT_FAKE_CUDA
#include "support/fake_cuda/fake_cuda.h"
#endif

namespace mpt::test {

// Location of configs/ and src/: a bundle for another machine brings the former.
inline std::filesystem::path source_directory() {
  const char* const moved = std::getenv("MPT_SOURCE_DIR");
  return moved != nullptr ? moved : MPT_SOURCE_DIR;
}

inline bool has_gpu() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

// GPU memory, zero-filled before it is handed out. Filled on a stream and waited for: the program's
// streams are non-blocking, so work on the legacy stream is not ordered before theirs.
class GpuAllocator final : public Allocator {
 public:
  explicit GpuAllocator(cudaStream_t stream) : stream_(stream) {}
  ~GpuAllocator() override {
    for (void* const block : blocks_) cudaFree(block);
  }
  std::byte* bytes(MemoryPurpose purpose, int64_t count) override {
    use_.add(purpose, align_up(count, kAlignment));
    void* block = nullptr;
    check_cuda(cudaMalloc(&block, size_t(align_up(count, kAlignment))), "cudaMalloc");
    blocks_.push_back(block);
    check_cuda(cudaMemsetAsync(block, 0, size_t(align_up(count, kAlignment)), stream_),
               "cudaMemsetAsync");
    check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    return static_cast<std::byte*>(block);
  }
  [[nodiscard]] const MemoryUse& use() const override { return use_; }

 private:
  cudaStream_t stream_;
  std::vector<void*> blocks_;
  MemoryUse use_;
};

// A stream, memory, and copies to and from it that are complete on return.
class Gpu {
 public:
  Gpu() = default;
  ~Gpu() { cudaStreamDestroy(stream_); }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  [[nodiscard]] cudaStream_t stream() const { return stream_; }
  [[nodiscard]] StreamRef ref() const { return {Backend::kCuda, stream_}; }
  Allocator& allocator() { return allocator_; }
  void synchronize() { check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

  // Returns a tensor of the same shape and stride, with the same bytes, including padding. Null
  // data: the tensor itself.
  Tensor copy(const Tensor& host) {
    if (host.data == nullptr) return host;
    Tensor device = host;
    device.data = allocator_.bytes({"data"}, host.bytes());
    write(device.data, host.data, host.bytes());
    return device;
  }
  void write(void* device, const void* host, int64_t bytes) {
    copy(device, host, bytes, cudaMemcpyHostToDevice);
  }
  // Reads after all work of the stream.
  void read(void* host, const void* device, int64_t bytes) {
    copy(host, device, bytes, cudaMemcpyDeviceToHost);
  }
  // Copies everything between its first and last element into a tensor of the same shape and
  // stride.
  void fetch(const Tensor& device, const Tensor& host) {
    read(host.data, device.data, device.bytes());
  }
  // Returns the same as bytes.
  std::vector<std::byte> fetch(const Tensor& device) {
    std::vector<std::byte> bytes(size_t(device.bytes()));
    fetch(device, {bytes.data(), device.dtype, device.rows, device.cols, device.stride});
    return bytes;
  }

 private:
  static cudaStream_t new_stream() {
    cudaStream_t stream = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    return stream;
  }
  void copy(void* target, const void* source, int64_t bytes, cudaMemcpyKind kind) {
    check_cuda(cudaMemcpyAsync(target, source, size_t(bytes), kind, stream_), "cudaMemcpyAsync");
    synchronize();
  }

  cudaStream_t stream_ = new_stream();
  GpuAllocator allocator_{stream_};
};

// Skips if there is no GPU; clears faults provoked by an earlier test.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
#ifdef MPT_FAKE_CUDA
    fake_cuda::recover();
    fake_cuda::set_order(fake_cuda::Order::kForward);
    fake_cuda::set_execution(fake_cuda::Execution::kAtOnce);
    fake_cuda::set_host_pointers(fake_cuda::HostPointers::kRefused);
    fake_cuda::set_races(fake_cuda::Races::kReported);
    fake_cuda::set_most_pitch((int64_t{1} << 31) - 1);
    fake_cuda::reset_counters();
#endif
  }
};

}  // namespace mpt::test
