// Error checks for NVIDIA's libraries, and RAII wrappers of their objects. Checks for other
// libraries are next to their includes (cublas_lt.h).
#pragma once

#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>

#include <cuda_runtime.h>

#include "core/check.h"
#include "device/device.h"

namespace mpt {

// Failure of the GPU, its driver or one of its libraries: neither a user's mistake nor a broken
// invariant.
class CudaError : public Error {
 public:
  CudaError(std::string_view call, std::string_view answer, std::source_location where)
      : Error(fmt::format("{} failed: {} ({}:{})", call, answer, where.file_name(), where.line())),
        call_(call),
        answer_(answer),
        where_(where) {}

  [[nodiscard]] const std::string& call() const { return call_; }  // "cudaMalloc"
  [[nodiscard]] const std::string& answer() const {
    return answer_;
  }  // "cudaErrorInvalidValue: invalid ..."
  [[nodiscard]] const char* file() const { return where_.file_name(); }
  [[nodiscard]] uint_least32_t line() const { return where_.line(); }

 private:
  std::string call_, answer_;
  std::source_location where_;
};

// "cudaErrorInvalidValue: invalid argument"
inline std::string answer_of(cudaError_t status) {
  return fmt::format("{}: {}", cudaGetErrorName(status), cudaGetErrorString(status));
}

// check_cuda(cudaMalloc(&p, n), "cudaMalloc");
inline void check_cuda(cudaError_t status, std::string_view call,
                       std::source_location where = std::source_location::current()) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears the error, so that later checks do not report it again
  throw CudaError(call, answer_of(status), where);
}

// Deleter for an object of a C library; ignores the destroying function's status.
template <auto kDestroy>
struct Destroyer {
  template <class T>
  void operator()(T* object) const {
    kDestroy(object);
  }
};
template <class Handle, auto kDestroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroyer<kDestroy>>;

// CUDA stream of a device or of its CommStream.
inline cudaStream_t stream_of(StreamRef stream) {
  check(stream.backend == Backend::kCuda, "stream of backend {}; expected a CUDA stream",
        name_of(stream.backend));
  return static_cast<cudaStream_t>(stream.native);
}

using CudaStream = Owned<cudaStream_t, cudaStreamDestroy>;
using CudaEvent = Owned<cudaEvent_t, cudaEventDestroy>;

}  // namespace mpt
