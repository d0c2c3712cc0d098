// The backends in this build, and how to choose between them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/enum_names.h"
#include "device/bf16_dot.h"
#include "device/device.h"

namespace mpt {

// CPU backend: host memory, OpenMP iteration, packed operands, tiled attention. threads = 0 uses
// every processor available to the process. Products that the processor does not support can only
// be planned.
std::unique_ptr<Device> make_cpu_device(int threads, Bf16Dot dot = Bf16Dot::kFma);

// Whether captured work is recorded as a CUDA graph and replayed.
enum class CudaGraphs : uint8_t { kOff, kOn };

// Whether Gemm::reserve() times the candidate algorithms of a GEMM or takes the library's first.
// Timing may choose a different algorithm in another run, with different bits; Gemm::choices()
// reports the choices.
enum class GemmTuning : uint8_t { kOff, kOn };

enum class CudaAttention : uint8_t {
  kAuto,   // cuDNN if it supports the shape; otherwise an info line says why, once per shape
  kCudnn,  // cuDNN or an Error
  kGemms   // always GEMMs
};
template <>
struct EnumNames<CudaAttention> {
  static constexpr std::array<std::string_view, 3> kNames{"auto", "cudnn", "gemms"};
};

// Whether cuDNN's attention gives the same gradients every time. If not, it takes less workspace,
// and no two runs have the same bits. GEMMs always do.
enum class DeterministicAttention : uint8_t { kOff, kOn };

// CUDA backend: memory of one NVIDIA GPU, cuBLASLt GEMMs, CUDA graphs, all on one stream.
struct CudaDeviceOptions {
  int index = 0;  // among the GPUs visible under CUDA_VISIBLE_DEVICES
  CudaGraphs graphs = CudaGraphs::kOn;
  GemmTuning tuning = GemmTuning::kOn;
  CudaAttention attention = CudaAttention::kAuto;
  DeterministicAttention deterministic_attention = DeterministicAttention::kOn;
};

// Throws Error with the reason from no_cuda_device() if there is one.
std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options);

// Device for planning only: counts the memory that GEMMs and attention on a CUDA device would take,
// without needing a GPU. Its memory_bytes() is the largest int64_t; anything that would touch a GPU
// throws LogicError.
std::unique_ptr<Device> make_cuda_planning_device(const CudaDeviceOptions& options = {});

// Why this GPU cannot be used; empty if it can.
std::string no_cuda_device(int index);

// Whether the program was built with CUDA; it may still find no GPU.
bool has_cuda();

// Registered by device/cuda/ if linked into the program; at most one exists.
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
  int threads = 0;  // CPU threads; 0: OMP_NUM_THREADS, else every available processor
  Bf16Dot bf16_dot = Bf16Dot::kFma;  // on a CPU
  CudaDeviceOptions cuda{};
};

// Throws Error with the reason if the backend is not built in or the machine has no device for it.
std::unique_ptr<Device> make_device(const DeviceOptions& options);

// For counting memory with a PlanningAllocator, so it needs no GPU. Throws Error if the backend is
// not built in.
std::unique_ptr<Device> make_planning_device(const DeviceOptions& options);

// Why the backend cannot be used here; empty if it can.
std::string why_unavailable(const DeviceOptions& options);

// Fastest usable backend: CUDA if it is built in and a GPU is usable, else the CPU.
Backend available_backend();

}  // namespace mpt
