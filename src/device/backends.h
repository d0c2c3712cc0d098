// The backends that this program was built with, and the choice between them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/enum_names.h"
#include "device/device.h"

namespace mpt {

// The CPU backend: host memory, OpenMP iteration, packed operands, tiled attention. threads = 0 takes every
// processor this process may run on.
std::unique_ptr<Device> make_cpu_device(int threads);

// Whether captured work becomes a graph that is replayed.
enum class CudaGraphs : uint8_t { kOff, kOn };

// Whether Gemm::reserve() times the algorithms for a GEMM or takes the library's first. Timing may choose
// another algorithm in another run, which then has other bits: what was chosen is in Gemm::choices().
enum class GemmTuning : uint8_t { kOff, kOn };

enum class CudaAttention : uint8_t {
  kAuto,   // cuDNN where it takes the shape; where it does not, an info line says why, once per shape
  kCudnn,  // cuDNN or an Error
  kGemms   // GEMMs always
};
template <>
struct EnumNames<CudaAttention> {
  static constexpr std::array<std::string_view, 3> kNames{"auto", "cudnn", "products"};
};

// The CUDA backend: memory of one NVIDIA GPU, cuBLASLt's GEMMs, CUDA graphs, all in one stream.
struct CudaDeviceOptions {
  int index = 0;  // among the GPUs that CUDA_VISIBLE_DEVICES leaves
  CudaGraphs graphs = CudaGraphs::kOn;
  GemmTuning tuning = GemmTuning::kOn;
  CudaAttention attention = CudaAttention::kAuto;
};

// Throws Error, saying why, where no_cuda_device() has a reason.
std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options);

// Counts the memory that a CUDA device's GEMMs and attention would take, on a machine that need not have
// one. Its memory_bytes() is the largest number there is; what would touch a GPU throws LogicError.
std::unique_ptr<Device> make_cuda_planning_device(const CudaDeviceOptions& options = {});

// Why this GPU cannot be used; empty where it can.
std::string no_cuda_device(int index);

// What device/cuda/ registers where it is linked into the program; there is one at most.
class CudaBackend {
 public:
  struct Makers {
    std::unique_ptr<Device> (*device)(const CudaDeviceOptions&);
    std::unique_ptr<Device> (*planning_device)(const CudaDeviceOptions&);
    std::string (*why_unavailable)(int index);
  };
  explicit CudaBackend(const Makers& makers);
  [[nodiscard]] const Makers& makers() const { return makers_; }

 private:
  Makers makers_;
};

struct DeviceOptions {
  Backend backend = Backend::kCpu;
  int threads = 0;  // of the CPU; 0: OMP_NUM_THREADS, else every processor this process may run on
  CudaDeviceOptions cuda{};
};

// Throws Error, saying why, where the backend is not built in or the machine has no device for it.
std::unique_ptr<Device> make_device(const DeviceOptions& options);

// For counting memory with a PlanningAllocator only, so that no GPU is needed. Throws Error where the backend
// is not built in.
std::unique_ptr<Device> make_planning_device(const DeviceOptions& options);

// Why the backend cannot be used here; empty where it can.
std::string why_unavailable(const DeviceOptions& options);

// The fastest backend that can be used: CUDA where it is built in and there is a GPU for it, else the CPU.
Backend available_backend();

}  // namespace mpt
