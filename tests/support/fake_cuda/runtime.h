// The state of the fake runtime that its libraries (cublasLt.h) share with it.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <cuda_runtime.h>

namespace fake_cuda::detail {

// Something on a stream; what went wrong, if anything did.
using Work = std::function<std::optional<std::string>()>;

// Runs it in its turn, or records it while the stream captures. A fault of the work is a launch failure.
cudaError_t enqueue(cudaStream_t stream, Work work);
// Notes why a call fails, and gives the error back.
cudaError_t refuse(cudaError_t error, std::string why);
void count_product();

}  // namespace fake_cuda::detail
