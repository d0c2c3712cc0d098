// State of the fake runtime shared with its libraries (cublasLt.h).
#pragma once

#include <chrono>
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
  std::chrono::steady_clock::time_point time{};  // when it was reached
};
// When an item runs, as far as its stream allows.
enum class When : uint8_t {
  kAsSet,   // according to Execution
  kAsOwed,  // no earlier than something else needs it or waits for it
};
// An item of a stream: wait for a mark, work, reach a mark; each is optional.
struct Item {
  cudaStream_t stream = nullptr;
  bool blocking = false;  // the stream; set by enqueue_item()
  When when = When::kAsSet;
  std::shared_ptr<Mark> after{};
  Work work{};
  std::shared_ptr<Mark> reaches{};
};

cudaError_t enqueue_item(Item item);
// Enqueues work, or records it while the stream captures. A fault of the work is a launch failure.
cudaError_t enqueue(cudaStream_t stream, Work work);
// Records why a call fails, and returns the error.
cudaError_t refuse(cudaError_t error, std::string why);
void count_gemm();

}  // namespace fake_cuda::detail
