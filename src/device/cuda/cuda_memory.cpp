#include "device/cuda/cuda_memory.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/text/units.h"
#include "device/cuda/cuda_handles.h"

namespace mpt {
namespace {

class CudaAllocator final : public Allocator {
 public:
  explicit CudaAllocator(cudaStream_t stream) : stream_(stream) {}
  std::byte* bytes(MemoryPurpose purpose, int64_t count) override {
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
    const auto size =
        static_cast<size_t>(std::max<int64_t>(tensor.elements() * size_of(tensor.dtype), 1));
    void* address = nullptr;
    check_cuda(cudaHostAlloc(&address, size, cudaHostAllocDefault), "cudaHostAlloc");
    images_.emplace_back().reset(address);
    memset(address, 0, size);
    return static_cast<std::byte*>(address);
  }

 private:
  [[nodiscard]] Error out_of_memory(MemoryPurpose purpose, int64_t wanted) const {
    cudaGetLastError();
    size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return error(
        "out of GPU memory: {} requested for {}, {} free of {} ({} already allocated); `plan` "
        "lists the memory that a configuration needs",
        format_bytes(double(wanted)), purpose.name, format_bytes(double(free)),
        format_bytes(double(total)), format_bytes(double(use_.total())));
  }

  cudaStream_t stream_;
  MemoryUse use_;
  // Freeing waits for work that still uses the memory.
  std::vector<Owned<void*, cudaFree>> buffers_;
  std::vector<Owned<void*, cudaFreeHost>> images_;
};

// --- reading in parallel with the device's work --------------------------------------------------

CudaStream make_stream() {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
             "cudaStreamCreateWithFlags");
  return CudaStream(stream);
}

CudaEvent make_event() {
  cudaEvent_t event = nullptr;
  // Blocking sync: a thread waiting for the event sleeps.
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync),
             "cudaEventCreateWithFlags");
  return CudaEvent(event);
}

int attribute_of(int gpu, cudaDeviceAttr attribute) {
  int value = 0;
  check_cuda(cudaDeviceGetAttribute(&value, attribute, gpu), "cudaDeviceGetAttribute");
  return value;
}

class Buffer {
 public:
  Buffer() : copied_(make_event()) {
    void* address = nullptr;
    check_cuda(cudaHostAlloc(&address, size_t{DeviceReader::kMostBytes}, cudaHostAllocDefault),
               "cudaHostAlloc");
    memory_.reset(address);
  }
  // Fills with the packed elements of the block; done once wait() returns.
  void fill(const Tensor& block, size_t most_pitch, cudaStream_t stream) {
    const auto item = static_cast<size_t>(size_of(block.dtype));
    const size_t row = static_cast<size_t>(block.cols) * item;
    bytes_ = row * static_cast<size_t>(block.rows);
    check(std::cmp_less_equal(bytes_, DeviceReader::kMostBytes),
          "reading a block of {} bytes; at most {} are allowed", bytes_, DeviceReader::kMostBytes);
    const size_t pitch = block.rows > 1 ? static_cast<size_t>(block.stride) * item : row;
    if (bytes_ > 0)
      copy_rows({.target = memory_.get(),
                 .target_pitch = row,
                 .source = block.data,
                 .source_pitch = pitch,
                 .width = row,
                 .rows = static_cast<size_t>(block.rows),
                 .kind = cudaMemcpyDeviceToHost,
                 .most_pitch = most_pitch},
                stream);
    check_cuda(cudaEventRecord(copied_.get(), stream), "cudaEventRecord");
  }
  [[nodiscard]] std::span<const std::byte> wait() const {
    check_cuda(cudaEventSynchronize(copied_.get()), "cudaEventSynchronize");
    return {static_cast<const std::byte*>(memory_.get()), bytes_};
  }

 private:
  Owned<void*, cudaFreeHost> memory_;
  CudaEvent copied_;
  size_t bytes_ = 0;
};

class CudaReader final : public DeviceReader {
 public:
  CudaReader(cudaStream_t work, int gpu)
      : work_(work),
        gpu_(gpu),
        copy_engines_(attribute_of(gpu, cudaDevAttrAsyncEngineCount)),
        most_pitch_(size_t(attribute_of(gpu, cudaDevAttrMaxPitch))),
        stream_(make_stream()),
        given_(make_event()) {}
  ~CudaReader() override { cudaStreamSynchronize(stream_.get()); }
  CudaReader(const CudaReader&) = delete;
  CudaReader& operator=(const CudaReader&) = delete;

  void begin() override {
    check_cuda(cudaEventRecord(given_.get(), work_), "cudaEventRecord");
    check_cuda(cudaStreamWaitEvent(stream_.get(), given_.get(), 0), "cudaStreamWaitEvent");
  }
  void read(std::span<const Tensor> blocks, const Take& take) override {
    check_cuda(cudaSetDevice(gpu_), "cudaSetDevice");  // for this thread
    if (!blocks.empty()) buffers_[0].fill(blocks[0], most_pitch_, stream_.get());
    for (size_t i = 0; i < blocks.size(); ++i) {
      const std::span<const std::byte> bytes = buffers_[i % 2].wait();
      if (i + 1 < blocks.size())
        buffers_[(i + 1) % 2].fill(blocks[i + 1], most_pitch_, stream_.get());
      take(bytes);
    }
  }
  // Without a copy engine, reads cannot overlap with kernels.
  [[nodiscard]] bool beside() const override { return copy_engines_ > 0; }

 private:
  cudaStream_t work_;
  int gpu_;
  int copy_engines_;
  size_t most_pitch_;
  CudaStream stream_;
  CudaEvent given_;
  std::array<Buffer, 2> buffers_;
};

}  // namespace

void copy_rows(const RowsCopy& copy, cudaStream_t stream) {
  const auto copy_bytes = [&](void* target, const void* source, size_t bytes) {
    check_cuda(cudaMemcpyAsync(target, source, bytes, copy.kind, stream), "cudaMemcpyAsync");
  };
  if (copy.target_pitch == copy.width && copy.source_pitch == copy.width)
    return copy_bytes(copy.target, copy.source, copy.width * copy.rows);
  if (std::max(copy.target_pitch, copy.source_pitch) <= copy.most_pitch) {
    check_cuda(cudaMemcpy2DAsync(copy.target, copy.target_pitch, copy.source, copy.source_pitch,
                                 copy.width, copy.rows, copy.kind, stream),
               "cudaMemcpy2DAsync");
    return;
  }
  for (size_t row = 0; row < copy.rows; ++row)
    copy_bytes(static_cast<std::byte*>(copy.target) + row * copy.target_pitch,
               static_cast<const std::byte*>(copy.source) + row * copy.source_pitch, copy.width);
}

std::unique_ptr<Allocator> make_cuda_allocator(cudaStream_t stream) {
  return std::make_unique<CudaAllocator>(stream);
}
std::unique_ptr<DeviceReader> make_cuda_reader(cudaStream_t work, int gpu) {
  return std::make_unique<CudaReader>(work, gpu);
}

}  // namespace mpt
