// The state of the fake runtime that its libraries (cublasLt.h) share with it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <cuda_runtime.h>

namespace fake_cuda::detail {

// Something on a stream; what went wrong, if anything did.
using Work = std::function<std::optional<std::string>()>;

// A point in the work of a stream for which others may wait.
struct Mark {
  bool reached = false;
};
// What a stream does: wait for a mark, work, reach a mark; any of them may be missing.
struct Item {
  cudaStream_t stream = nullptr;
  std::shared_ptr<Mark> after{};
  Work work{};
  std::shared_ptr<Mark> reaches{};
};

cudaError_t enqueue_item(Item item);
// Runs it in its turn, or records it while the stream captures. A fault of the work is a launch failure.
cudaError_t enqueue(cudaStream_t stream, Work work);
// Notes why a call fails, and gives the error back.
cudaError_t refuse(cudaError_t error, std::string why);
void count_gemm();

}  // namespace fake_cuda::detail
