// The CUDA backend.
#include <limits>
#include <utility>

#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>
#ifdef MPT_WITH_CUDNN
#include <cudnn.h>
#endif

#include "core/check.h"
#include "core/progress.h"
#include "device/backends.h"
#include "device/cuda/cuda_attention.h"
#include "device/cuda/cuda_gemm.h"
#include "device/cuda/cuda_handles.h"
#include "device/cuda/cuda_memory.h"
#include "device/cuda/cuda_streams.h"

namespace mpt {
namespace {

constexpr int kFirstCapability = 80;  // tensor-core bf16 GEMMs, asynchronous copies

int capability_of(const cudaDeviceProp& gpu) { return 10 * gpu.major + gpu.minor; }

cudaDeviceProp properties_of(int index) {
  cudaDeviceProp gpu{};
  check_cuda(cudaGetDeviceProperties(&gpu, index), "cudaGetDeviceProperties");
  return gpu;
}

// "13.0" for 13000.
std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

int driver_version() {
  int version = 0;
  check_cuda(cudaDriverGetVersion(&version), "cudaDriverGetVersion");
  return version;
}

int runtime_version() {
  int version = 0;
  check_cuda(cudaRuntimeGetVersion(&version), "cudaRuntimeGetVersion");
  return version;
}

// "cuDNN 9.19.0"
std::string attention_library(CudaAttention kind) {
#ifdef MPT_WITH_CUDNN
  if (kind != CudaAttention::kGemms) {
    const size_t version = cudnnGetVersion();
    return fmt::format("cuDNN {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  }
#endif
  check(kind != CudaAttention::kCudnn, "cuDNN attention in a build without it");
  return "attention by GEMMs";
}

// A non-blocking stream: the default kind waits for the legacy default stream, where libraries may
// leave work.
CudaStream make_stream() {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
             "cudaStreamCreateWithFlags");
  return CudaStream(stream);
}

// Selects the GPU for this thread's calls, before anything is created on it.
cudaDeviceProp selected(int index) {
  const std::string problem = no_cuda_device(index);
  if (!problem.empty()) throw Error(problem);
  check_cuda(cudaSetDevice(index), "cudaSetDevice");
  return properties_of(index);
}

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const CudaDeviceOptions& options)
      : options_(options),
        gpu_(selected(options.index)),
        stream_(make_stream()),
        gemm_({.stream = stream_.get(),
               .gpu = gpu_.name,
               .compute_capability = capability_of(gpu_),
               .tuning = options.tuning}),
        attention_(make_cuda_attention(stream_.get(), options.attention,
                                       options.deterministic_attention)) {}
  ~CudaDevice() override { cudaStreamSynchronize(stream_.get()); }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  [[nodiscard]] Backend backend() const override { return Backend::kCuda; }
  [[nodiscard]] StreamRef stream() const override { return {Backend::kCuda, stream_.get()}; }
  [[nodiscard]] std::string name() const override {
    return fmt::format("CUDA: {}, {} SMs, {:.0f} GB, driver {}", gpu_.name,
                       gpu_.multiProcessorCount, double(gpu_.totalGlobalMem) * 1e-9,
                       version_text(driver_version()));
  }
  [[nodiscard]] std::string libraries() const override {
    return fmt::format("CUDA runtime {}, {}, {}", version_text(runtime_version()),
                       cublas_lt_description(), attention_library(options_.attention));
  }
  [[nodiscard]] int64_t memory_bytes() const override {
    size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return static_cast<int64_t>(free);
  }
  [[nodiscard]] int64_t alignment() const override { return kCudaAlignment; }
  std::unique_ptr<Allocator> make_allocator() override {
    return make_cuda_allocator(stream_.get());
  }

  void download(const Tensor& source, std::byte* target) override {
    copy({target, row_bytes(source)}, {source.data, stride_bytes(source)}, source,
         cudaMemcpyDeviceToHost);
  }
  void upload(const std::byte* source, const Tensor& target) override {
    copy({target.data, stride_bytes(target)}, {const_cast<std::byte*>(source), row_bytes(target)},
         target, cudaMemcpyHostToDevice);
  }
  void synchronize() override {
    check_may_wait("synchronize");
    wait_for_stream();
  }

  void send(const PinnedBuffer& buffer) override {
    copy_buffer(buffer.tensor.data, buffer.host, buffer, cudaMemcpyHostToDevice);
  }
  void receive(const PinnedBuffer& buffer) override {
    copy_buffer(buffer.host, buffer.tensor.data, buffer, cudaMemcpyDeviceToHost);
  }
  std::unique_ptr<GraphCapture> make_graph_capture() override {
    return options_.graphs == CudaGraphs::kOn ? make_cuda_graph(stream_.get(), capture_depth_)
                                              : make_plain_capture(capture_depth_);
  }
  std::unique_ptr<DeviceReader> make_reader() override {
    return make_cuda_reader(stream_.get(), options_.index);
  }
  void guard_waits(WaitGuard guard) override { guard_ = std::move(guard); }
  std::unique_ptr<CommStream> make_comm_stream() override {
    return make_cuda_comm_stream(stream_.get());
  }

  void push_scope(const char* name, double /*flops*/) override { nvtxRangePushA(name); }
  void pop_scope() override { nvtxRangePop(); }

  Gemm& gemm() override { return gemm_; }
  Attention& attention() override { return *attention_; }

 private:
  struct Rows {
    std::byte* data;
    size_t pitch;  // bytes from one row to the next
  };
  static size_t row_bytes(const Tensor& t) {
    return static_cast<size_t>(t.cols * size_of(t.dtype));
  }
  // A single row may have any stride, even one too short to be a pitch.
  static size_t stride_bytes(const Tensor& t) {
    return t.rows > 1 ? static_cast<size_t>(t.stride * size_of(t.dtype)) : row_bytes(t);
  }

  void copy(Rows target, Rows source, const Tensor& shape, cudaMemcpyKind kind) {
    check_may_wait(kind == cudaMemcpyHostToDevice ? "upload" : "download");
    if (shape.elements() == 0) return;
    copy_rows({.target = target.data,
               .target_pitch = target.pitch,
               .source = source.data,
               .source_pitch = source.pitch,
               .width = row_bytes(shape),
               .rows = static_cast<size_t>(shape.rows),
               .kind = kind,
               .most_pitch = gpu_.memPitch},
              stream_.get());
    wait_for_stream();
  }
  void copy_buffer(std::byte* target, const std::byte* source, const PinnedBuffer& buffer,
                   cudaMemcpyKind kind) {
    check(buffer.tensor.contiguous(), "pinned buffer [{},{}] with row stride {} is not contiguous",
          buffer.tensor.rows, buffer.tensor.cols, buffer.tensor.stride);
    if (buffer.tensor.elements() == 0) return;
    check_cuda(cudaMemcpyAsync(target, source, static_cast<size_t>(buffer.tensor.bytes()), kind,
                               stream_.get()),
               "cudaMemcpyAsync");
  }
  void wait_for_stream() const {
    const auto wait = [this] {
      check_cuda(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
    };
    if (guard_)
      guard_(wait);
    else
      wait();
  }
  // Also checked in the direct first run of captured work, although only the later recording could
  // not hold it.
  void check_may_wait(std::string_view what) const {
    check(capture_depth_.depth == 0, "{}() during graph capture, which must not wait for the GPU",
          what);
  }

  CudaDeviceOptions options_;
  cudaDeviceProp gpu_;
  CudaStream stream_;
  CudaGemm gemm_;
  std::unique_ptr<Attention> attention_;
  CaptureDepth capture_depth_;
  WaitGuard guard_;
};

class CudaPlanningDevice final : public Device {
 public:
  explicit CudaPlanningDevice(const CudaDeviceOptions& options)
      : gemm_({.tuning = GemmTuning::kOff}),
        attention_(
            make_cuda_attention(nullptr, options.attention, options.deterministic_attention)) {}

  [[nodiscard]] Backend backend() const override { return Backend::kCuda; }
  [[nodiscard]] std::string name() const override { return "CUDA: a plan for a GPU"; }
  [[nodiscard]] std::string libraries() const override { return cublas_lt_description(); }
  [[nodiscard]] int64_t memory_bytes() const override {
    return std::numeric_limits<int64_t>::max();
  }
  [[nodiscard]] int64_t alignment() const override { return kCudaAlignment; }
  std::unique_ptr<Allocator> make_allocator() override { refuse("allocates"); }
  void download(const Tensor&, std::byte*) override { refuse("copies"); }
  void upload(const std::byte*, const Tensor&) override { refuse("copies"); }
  void synchronize() override { refuse("computes"); }
  void send(const PinnedBuffer&) override { refuse("copies"); }
  void receive(const PinnedBuffer&) override { refuse("copies"); }
  std::unique_ptr<GraphCapture> make_graph_capture() override {
    return make_plain_capture(capture_depth_);
  }
  Gemm& gemm() override { return gemm_; }
  Attention& attention() override { return *attention_; }

 private:
  [[noreturn]] static void refuse(std::string_view what) {
    throw LogicError(fmt::format("a planning device for a GPU {} nothing", what));
  }

  CudaGemm gemm_;
  std::unique_ptr<Attention> attention_;
  CaptureDepth capture_depth_;
};

std::string why_unavailable(int index) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    cudaGetLastError();
    return fmt::format("no NVIDIA GPU or no driver for it (cudaGetDeviceCount: {})",
                       answer_of(status));
  }
  if (count == 0) return "no NVIDIA GPU (cudaGetDeviceCount: 0)";
  if (index < 0 || index >= count)
    return fmt::format("no GPU {}: CUDA shows this process {}, numbered from 0", index,
                       count == 1 ? "1 GPU" : fmt::format("{} GPUs", count));
  const cudaDeviceProp gpu = properties_of(index);
  if (capability_of(gpu) < kFirstCapability)
    return fmt::format("GPU {} ({}) has compute capability {}.{}; {}.{} or newer is needed", index,
                       gpu.name, gpu.major, gpu.minor, kFirstCapability / 10,
                       kFirstCapability % 10);
  return "";
}

const CudaBackend registered({
    .device = [](const CudaDeviceOptions& options) -> std::unique_ptr<Device> {
      return std::make_unique<CudaDevice>(options);
    },
    .planning_device = [](const CudaDeviceOptions& options) -> std::unique_ptr<Device> {
      return std::make_unique<CudaPlanningDevice>(options);
    },
    .why_unavailable = why_unavailable,
});

}  // namespace

}  // namespace mpt
