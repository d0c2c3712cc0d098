#include "device/cuda/cuda_side_queue.h"

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include "core/check.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/owned.h"

namespace mpt {
namespace {

using Stream = Owned<cudaStream_t, cudaStreamDestroy>;
using Event = Owned<cudaEvent_t, cudaEventDestroy>;

// Before what else is ready: other GPUs wait for what this one sends. CUDA takes the nearest that it has.
constexpr int kHighestPriority = -100;

Stream make_stream() {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, kHighestPriority),
             "cudaStreamCreateWithPriority");
  return Stream(stream);
}
Event make_event() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return Event(event);
}

// Makes what `later` is given from now on wait for all that `earlier` was given so far.
void put_after(cudaStream_t later, cudaStream_t earlier, cudaEvent_t event) {
  check_cuda(cudaEventRecord(event, earlier), "cudaEventRecord");
  check_cuda(cudaStreamWaitEvent(later, event, 0), "cudaStreamWaitEvent");
}

class CudaSideQueue final : public SideQueue {
 public:
  explicit CudaSideQueue(cudaStream_t device) : device_(device), side_(make_stream()), begun_(make_event()) {
    for (Event& event : done_) event = make_event();
  }
  ~CudaSideQueue() override { cudaStreamSynchronize(side_.get()); }
  CudaSideQueue(const CudaSideQueue&) = delete;
  CudaSideQueue& operator=(const CudaSideQueue&) = delete;

  Ticket run(std::function<void()> work) override {
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

  // A ticket so old that its event has been used again is waited for with the oldest that has not: the stream
  // keeps the order.
  void wait(Ticket ticket) override {
    check(ticket >= 1 && ticket <= given_, "ticket {} of {}", ticket, given_);
    if (failure_) std::rethrow_exception(failure_);
    const Ticket kept = std::max(ticket, given_ - kEvents + 1);
    check_cuda(cudaStreamWaitEvent(device_, event_of(kept), 0), "cudaStreamWaitEvent");
  }
  [[nodiscard]] CUstream_st* cuda_stream() const override { return side_.get(); }

 private:
  static constexpr Ticket kEvents = 64;

  [[nodiscard]] cudaEvent_t event_of(Ticket ticket) const { return done_[size_t(ticket % kEvents)].get(); }

  cudaStream_t device_;
  Stream side_;
  Event begun_;  // what the device was given before the latest work
  std::array<Event, size_t(kEvents)> done_;
  Ticket given_ = 0;
  std::exception_ptr failure_;
};

}  // namespace

std::unique_ptr<SideQueue> make_cuda_side_queue(cudaStream_t stream) {
  return std::make_unique<CudaSideQueue>(stream);
}

}  // namespace mpt
