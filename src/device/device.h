// What a backend supplies besides iteration (exec.h): memory, copies, matrix products and attention.
//
// Calls are asynchronous with respect to the host where the backend is; synchronize() waits for all of them.
// upload() and download() have completed when they return. send() and receive() only enqueue, between a
// tensor and its image in host memory (memory_plan.h), so that a step need not wait for the host.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "core/tensor.h"
#include "device/attention.h"
#include "device/device_reader.h"
#include "device/gemm.h"
#include "device/memory_plan.h"
#include "device/side_queue.h"

struct CUstream_st;

namespace mpt {

enum class Backend : uint8_t { kCpu, kCuda };
template <>
struct EnumNames<Backend> {
  static constexpr std::array<std::string_view, 2> kNames{"cpu", "cuda"};
};

// Work that is run again and again: the same calls on the same memory each time. What differs from run to run
// lies in staged tensors. A backend may record the calls once and replay them after that, so the work must
// not wait for the device: no upload(), download() or synchronize().
class RepeatedWork {
 public:
  virtual ~RepeatedWork() = default;
  virtual void run(const std::function<void()>& work) { work(); }
  // Whether the last run repeated a recording.
  [[nodiscard]] virtual bool replayed() const { return false; }
};

class Device {
 public:
  virtual ~Device() = default;

  [[nodiscard]] virtual Backend backend() const = 0;
  // Where a CUDA backend's work is enqueued; null elsewhere, and where a device only plans.
  [[nodiscard]] virtual CUstream_st* cuda_stream() const { return nullptr; }

  [[nodiscard]] virtual std::string name() const = 0;       // "CPU: AMD EPYC, 2 threads"
  [[nodiscard]] virtual std::string libraries() const = 0;  // what multiplies, readable
  [[nodiscard]] virtual int64_t memory_bytes() const = 0;   // what a run may take in all
  // Of every buffer's start, and what its size is counted in: for a PlanningAllocator. Bytes.
  [[nodiscard]] virtual int64_t alignment() const { return kAlignment; }
  virtual std::unique_ptr<Allocator> make_allocator() = 0;

  // Copies the logical elements of a tensor, row after row without padding, to or from host memory.
  virtual void download(const Tensor& source, std::byte* target) = 0;
  virtual void upload(const std::byte* source, const Tensor& target) = 0;
  virtual void synchronize() = 0;

  // Enqueues the copy of the image to its tensor. The image is read when the copy is made: it must not change
  // until synchronize().
  virtual void send(const Staged& /*staged*/) {}
  // Enqueues the copy of the tensor to its image, which is there after synchronize().
  virtual void receive(const Staged& /*staged*/) {}
  virtual std::unique_ptr<RepeatedWork> make_repeated_work() { return std::make_unique<RepeatedWork>(); }

  // From now on every wait of the host for this device is made by guard(wait), which calls wait() once: for
  // who must notice that it does not end. Empty: no longer. Only where waits may last for others' sake.
  using WaitGuard = std::function<void(const std::function<void()>& wait)>;
  virtual void guard_waits(WaitGuard /*guard*/) {}

  // Work beside the device's own, on a thread or stream of its own.
  virtual std::unique_ptr<SideQueue> make_side_queue();
  // Reads this device's memory beside its work; the device outlives it.
  virtual std::unique_ptr<DeviceReader> make_reader();

  // Named stretches of work in a profiler's time line, with the FLOPs of their products where these are
  // counted (range.h).
  virtual void push_range(const char* /*name*/, double /*flops*/) {}
  virtual void pop_range() {}

  virtual Gemm& gemm() = 0;
  virtual Attention& attention() = 0;
};

}  // namespace mpt
