// Default CommStream and DeviceReader for devices in host memory: a thread, and copies.
#include "device/device.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <omp.h>

#include "core/check.h"

namespace mpt {

void CommStream::copy(const Tensor& from, const Tensor& to) {
  check(from.contiguous() && to.contiguous() && from.bytes() == to.bytes(),
        "copy of {} bytes to {}; both must be contiguous and of equal size", from.bytes(),
        to.bytes());
  if (from.elements() > 0) memcpy(to.data, from.data, size_t(from.bytes()));
}

namespace {

class ThreadCommStream final : public CommStream {
 public:
  ThreadCommStream() : thread_([this] { serve(); }) {}
  ~ThreadCommStream() override { join(); }
  ThreadCommStream(const ThreadCommStream&) = delete;
  ThreadCommStream& operator=(const ThreadCommStream&) = delete;

  Event run(std::function<void()> work) override {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(work));
    changed_.notify_all();
    return ++given_;
  }

  void settle() override {
    std::unique_lock lock(mutex_);
    if (!waiting_.empty() && !failure_)
      failure_ = std::make_exception_ptr(LogicError("communication work was dropped"));
    waiting_.clear();
    changed_.notify_all();
    changed_.wait(lock, [&] { return !running_; });
  }

  void wait(Event event) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= event || failure_; });
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void join() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  // Uses one core for all its work; the others compute.
  void serve() {
    omp_set_num_threads(1);
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      const std::function<void()> work = std::move(waiting_.front());
      waiting_.pop_front();
      if (failure_) continue;
      running_ = true;
      lock.unlock();
      std::exception_ptr failure;
      try {
        work();
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      running_ = false;
      if (!failure) ++done_;
      if (!failure_) failure_ = failure;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  Event given_ = 0, done_ = 0;
  std::exception_ptr failure_;
  bool running_ = false, stopping_ = false;
  std::thread thread_;
};

class HostReader final : public DeviceReader {
 public:
  explicit HostReader(Device& device) : device_(device) {}
  void begin() override { device_.synchronize(); }
  void read(std::span<const Tensor> blocks, const Take& take) override {
    for (const Tensor& block : blocks) {
      const auto bytes = static_cast<size_t>(block.elements() * size_of(block.dtype));
      if (buffer_.size() < bytes) buffer_.resize(bytes);
      device_.download(block, buffer_.data());
      take(std::span(buffer_).first(bytes));
    }
  }

 private:
  Device& device_;
  std::vector<std::byte> buffer_;
};

}  // namespace

std::unique_ptr<CommStream> Device::make_comm_stream() {
  return std::make_unique<ThreadCommStream>();
}
std::unique_ptr<DeviceReader> Device::make_reader() { return std::make_unique<HostReader>(*this); }

}  // namespace mpt
