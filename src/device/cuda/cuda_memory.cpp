#include "device/cuda/cuda_memory.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/progress.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/owned.h"

namespace mpt {
namespace {

class CudaAllocator final : public Allocator {
 public:
  explicit CudaAllocator(cudaStream_t stream) : stream_(stream) {}
  std::byte* bytes(Purpose purpose, int64_t count) override {
    const int64_t size = std::max(align_up(count, kCudaAlignment), kCudaAlignment);
    void* address = nullptr;
    const cudaError_t status = cudaMalloc(&address, static_cast<size_t>(size));
    if (status == cudaErrorMemoryAllocation) throw out_of_memory(purpose, count);
    check_cuda(status, "cudaMalloc");
    buffers_.emplace_back().reset(address);
    check_cuda(cudaMemsetAsync(address, 0, static_cast<size_t>(size), stream_), "cudaMemsetAsync");
    use_.add(purpose, align_up(count, kCudaAlignment));
    return static_cast<std::byte*>(address);
  }
  [[nodiscard]] const MemoryUse& use() const override { return use_; }

 protected:
  std::byte* image_of(const Tensor& tensor) override {
    const auto size = static_cast<size_t>(std::max<int64_t>(tensor.elements() * size_of(tensor.dtype), 1));
    void* address = nullptr;
    check_cuda(cudaHostAlloc(&address, size, cudaHostAllocDefault), "cudaHostAlloc");
    images_.emplace_back().reset(address);
    memset(address, 0, size);
    return static_cast<std::byte*>(address);
  }

 private:
  [[nodiscard]] Error out_of_memory(Purpose purpose, int64_t wanted) const {
    cudaGetLastError();
    size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return error(
        "out of GPU memory: {} wanted for {}, {} free of {} ({} taken before); `plan` lists what a "
        "configuration takes",
        format_bytes(double(wanted)), name_of(purpose), format_bytes(double(free)),
        format_bytes(double(total)), format_bytes(double(use_.total())));
  }

  cudaStream_t stream_;
  MemoryUse use_;
  // Freeing waits for the work that still uses the memory.
  std::vector<Owned<void*, cudaFree>> buffers_;
  std::vector<Owned<void*, cudaFreeHost>> images_;
};

}  // namespace

std::unique_ptr<Allocator> make_cuda_allocator(cudaStream_t stream) {
  return std::make_unique<CudaAllocator>(stream);
}

}  // namespace mpt
