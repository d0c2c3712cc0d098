#include "device/cuda/cuda_streams.h"

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include "core/check.h"
#include "device/cuda/cuda_handles.h"

namespace mpt {
namespace {

// Takes precedence over other ready work, because other GPUs wait for what this one sends. CUDA
// clamps it to the nearest supported priority.
constexpr int kHighestPriority = -100;

CudaStream make_stream() {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, kHighestPriority),
             "cudaStreamCreateWithPriority");
  return CudaStream(stream);
}
CudaEvent make_event() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return CudaEvent(event);
}

// Makes future work on `later` wait for everything enqueued so far on `earlier`.
void put_after(cudaStream_t later, cudaStream_t earlier, cudaEvent_t event) {
  check_cuda(cudaEventRecord(event, earlier), "cudaEventRecord");
  check_cuda(cudaStreamWaitEvent(later, event, 0), "cudaStreamWaitEvent");
}

class CudaCommStream final : public CommStream {
 public:
  explicit CudaCommStream(cudaStream_t device)
      : device_(device), side_(make_stream()), begun_(make_event()) {
    for (CudaEvent& event : done_) event = make_event();
  }
  ~CudaCommStream() override { cudaStreamSynchronize(side_.get()); }
  CudaCommStream(const CudaCommStream&) = delete;
  CudaCommStream& operator=(const CudaCommStream&) = delete;

  Event run(std::function<void()> work) override {
    if (failure_) return ++given_;
    put_after(side_.get(), device_, begun_.get());
    try {
      work();
    } catch (...) {
      failure_ = std::current_exception();
      return ++given_;
    }
    ++given_;
    check_cuda(cudaEventRecord(event_of(given_), side_.get()), "cudaEventRecord");
    return given_;
  }

  // If the CUDA event of an old Event has been reused, waits for the oldest one that has not;
  // stream order makes that sufficient.
  void wait(Event event) override {
    check(event >= 1 && event <= given_, "event {} is outside 1 to {}", event, given_);
    if (failure_) std::rethrow_exception(failure_);
    const Event kept = std::max(event, given_ - kEvents + 1);
    check_cuda(cudaStreamWaitEvent(device_, event_of(kept), 0), "cudaStreamWaitEvent");
  }
  void settle() override { cudaStreamSynchronize(side_.get()); }
  void copy(const Tensor& from, const Tensor& to) override {
    check(from.contiguous() && to.contiguous() && from.bytes() == to.bytes(),
          "copy of {} bytes to {}; both must be contiguous and of equal size", from.bytes(),
          to.bytes());
    if (from.elements() > 0)
      check_cuda(cudaMemcpyAsync(to.data, from.data, size_t(from.bytes()), cudaMemcpyDeviceToDevice,
                                 side_.get()),
                 "cudaMemcpyAsync");
  }
  [[nodiscard]] StreamRef stream() const override { return {Backend::kCuda, side_.get()}; }

 private:
  static constexpr Event kEvents = 64;

  [[nodiscard]] cudaEvent_t event_of(Event event) const {
    return done_[size_t(event % kEvents)].get();
  }

  cudaStream_t device_;
  CudaStream side_;
  CudaEvent begun_;  // recorded on the device's stream before the latest work
  std::array<CudaEvent, size_t(kEvents)> done_;
  Event given_ = 0;
  std::exception_ptr failure_;
};

// --- captured work -------------------------------------------------------------------------------

class Deeper {
 public:
  explicit Deeper(CaptureDepth& depth) : depth_(depth) { ++depth_.depth; }
  ~Deeper() { --depth_.depth; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  CaptureDepth& depth_;
};

class PlainCapture final : public GraphCapture {
 public:
  explicit PlainCapture(CaptureDepth& depth) : depth_(depth) {}
  void run(const std::function<void()>& work) override {
    const Deeper deeper(depth_);
    work();
  }

 private:
  CaptureDepth& depth_;
};

class CudaGraph final : public GraphCapture {
 public:
  CudaGraph(cudaStream_t stream, CaptureDepth& depth) : stream_(stream), depth_(depth) {}
  ~CudaGraph() override {
    if (replay_ != nullptr) cudaStreamSynchronize(stream_);  // it may still be running
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void run(const std::function<void()>& work) override {
    replayed_ = false;
    const bool part_of_other_work = depth_.depth > 0;
    if (part_of_other_work || !has_run_) {
      const Deeper deeper(depth_);
      work();
      has_run_ = has_run_ || !part_of_other_work;
      return;
    }
    const bool recorded_before = replay_ != nullptr;
    if (!recorded_before) replay_ = instance_of(*recorded(work));
    check_cuda(cudaGraphLaunch(replay_.get(), stream_), "cudaGraphLaunch");
    replayed_ = recorded_before;
  }
  [[nodiscard]] bool replayed() const override { return replayed_; }

 private:
  using Graph = Owned<cudaGraph_t, cudaGraphDestroy>;
  using Instance = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;

  // Other threads may call CUDA freely in the meantime.
  [[nodiscard]] Graph recorded(const std::function<void()>& work) const {
    check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
               "cudaStreamBeginCapture");
    try {
      const Deeper deeper(depth_);
      work();
    } catch (...) {
      cudaGraph_t graph = nullptr;
      cudaStreamEndCapture(stream_, &graph);
      cudaGetLastError();  // clears the capture's error; the original exception is reported
      const Graph discarded(graph);
      throw;
    }
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    return Graph(graph);
  }
  static Instance instance_of(CUgraph_st& graph) {
    cudaGraphExec_t instance = nullptr;
    check_cuda(cudaGraphInstantiate(&instance, &graph, cudaGraphInstantiateFlagUseNodePriority),
               "cudaGraphInstantiate");
    return Instance(instance);
  }

  cudaStream_t stream_;
  CaptureDepth& depth_;
  bool has_run_ = false;   // once, directly
  bool replayed_ = false;  // on the last run
  Instance replay_;
};

}  // namespace

std::unique_ptr<CommStream> make_cuda_comm_stream(cudaStream_t stream) {
  return std::make_unique<CudaCommStream>(stream);
}
std::unique_ptr<GraphCapture> make_cuda_graph(cudaStream_t stream, CaptureDepth& depth) {
  return std::make_unique<CudaGraph>(stream, depth);
}
std::unique_ptr<GraphCapture> make_plain_capture(CaptureDepth& depth) {
  return std::make_unique<PlainCapture>(depth);
}

}  // namespace mpt
