#include "device/cuda/cuda_graph.h"

#include "device/cuda/cuda_error.h"
#include "device/cuda/owned.h"

namespace mpt {
namespace {

class Deeper {
 public:
  explicit Deeper(RepetitionDepth& depth) : depth_(depth) { ++depth_.depth; }
  ~Deeper() { --depth_.depth; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  RepetitionDepth& depth_;
};

class PlainRepeatedWork final : public RepeatedWork {
 public:
  explicit PlainRepeatedWork(RepetitionDepth& depth) : depth_(depth) {}
  void run(const std::function<void()>& work) override {
    const Deeper deeper(depth_);
    work();
  }

 private:
  RepetitionDepth& depth_;
};

class CudaGraph final : public RepeatedWork {
 public:
  CudaGraph(cudaStream_t stream, RepetitionDepth& depth) : stream_(stream), depth_(depth) {}
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

  // Other threads may call CUDA as they like meanwhile.
  [[nodiscard]] Graph recorded(const std::function<void()>& work) const {
    check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    try {
      const Deeper deeper(depth_);
      work();
    } catch (...) {
      cudaGraph_t graph = nullptr;
      cudaStreamEndCapture(stream_, &graph);
      cudaGetLastError();  // that the capture is invalid now; what to report is what made it so
      const Graph discarded(graph);
      throw;
    }
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    return Graph(graph);
  }
  static Instance instance_of(CUgraph_st& graph) {
    cudaGraphExec_t instance = nullptr;
    check_cuda(cudaGraphInstantiate(&instance, &graph, 0), "cudaGraphInstantiate");
    return Instance(instance);
  }

  cudaStream_t stream_;
  RepetitionDepth& depth_;
  bool has_run_ = false;   // once, as it is
  bool replayed_ = false;  // the last time
  Instance replay_;
};

}  // namespace

std::unique_ptr<RepeatedWork> make_cuda_graph(cudaStream_t stream, RepetitionDepth& depth) {
  return std::make_unique<CudaGraph>(stream, depth);
}
std::unique_ptr<RepeatedWork> make_plain_repeated_work(RepetitionDepth& depth) {
  return std::make_unique<PlainRepeatedWork>(depth);
}

}  // namespace mpt
