// State of the fake runtime shared with its libraries (cublasLt.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <cuda_runtime.h>

namespace fake_cuda::detail {

// Work on a stream; returns the fault, if any.
using Work = std::function<std::optional<std::string>()>;

// A point in the work of a stream that others can wait for.
struct Mark {
  bool reached = false;
};
// An item of a stream: wait for a mark, work, reach a mark; each is optional.
struct Item {
  cudaStream_t stream = nullptr;
  std::shared_ptr<Mark> after{};
  Work work{};
  std::shared_ptr<Mark> reaches{};
};

cudaError_t enqueue_item(Item item);
// Enqueues it, or records it while the stream captures. A fault of the work is a launch failure.
cudaError_t enqueue(cudaStream_t stream, Work work);
// Records why a call fails, and returns the error.
cudaError_t refuse(cudaError_t error, std::string why);
void count_gemm();

}  // namespace fake_cuda::detail
