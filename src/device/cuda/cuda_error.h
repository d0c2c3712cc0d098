// The one way that calls of CUDA's libraries fail here: with the call, what it answered, and where it stands.
#pragma once

#include <source_location>
#include <string>
#include <string_view>

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "core/check.h"

namespace mpt {

// The GPU, its driver or one of its libraries refused. Not the user's fault, and not a wrong assumption either.
class CudaError : public Error {
 public:
  CudaError(std::string_view call, std::string_view answer, std::source_location where)
      : Error(fmt::format("{} failed: {} ({}:{})", call, answer, where.file_name(), where.line())) {}
};

// check_cuda(cudaMalloc(&p, n), "cudaMalloc");
inline void check_cuda(cudaError_t status, std::string_view call,
                       std::source_location where = std::source_location::current()) {
  if (status == cudaSuccess) return;
  throw CudaError(call, fmt::format("{}: {}", cudaGetErrorName(status), cudaGetErrorString(status)), where);
}

inline void check_cublas(cublasStatus_t status, std::string_view call,
                         std::source_location where = std::source_location::current()) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw CudaError(call, fmt::format("{}: {}", cublasLtGetStatusName(status), cublasLtGetStatusString(status)),
                  where);
}

}  // namespace mpt
