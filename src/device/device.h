// What a backend supplies besides iteration (exec.h): memory, copies, GEMMs, attention, and work beside its
// own.
//
// Calls are asynchronous with respect to the host where the backend is; synchronize() waits for all of them.
// upload() and download() have completed when they return. send() and receive() only enqueue, between a
// tensor and its image in host memory (memory.h), so that a step need not wait for the host.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/enum_names.h"
#include "core/tensor.h"
#include "device/attention.h"
#include "device/gemm.h"
#include "device/memory.h"

namespace mpt {

enum class Backend : uint8_t { kCpu, kCuda };
template <>
struct EnumNames<Backend> {
  static constexpr std::array<std::string_view, 2> kNames{"cpu", "cuda"};
};

// Where a backend's work is enqueued. Only the backend's own code knows what `native` is: a CUDA stream, or
// null where the device only plans.
struct StreamRef {
  Backend backend = Backend::kCpu;
  void* native = nullptr;

  bool operator==(const StreamRef&) const = default;
};

// Work beside the device's own: collectives that overlap with computing.
class CommStream {
 public:
  using Event = int64_t;  // of run() calls, from 1

  virtual ~CommStream() = default;
  // Enqueues work that begins when all that the device was given so far and all earlier work of this stream
  // is done, beside what the device is given next. It may be called on another thread, once and in order:
  // what it uses must live until then, and it gives the device's own stream nothing. On a CUDA backend it is
  // called at once and enqueues on stream().
  virtual Event run(std::function<void()> work) = 0;
  // What the device is given from now on begins when that work is done. Throws what the work threw, and again
  // at every later call: a stream whose work failed runs no more.
  virtual void wait(Event event) = 0;
  // Drops what has not begun and waits for what has: for an end with an error. Nothing may be run afterwards.
  virtual void stop() = 0;

  // Within its work: copies as many bytes as `from` has; both are contiguous.
  virtual void copy(const Tensor& from, const Tensor& to);
  // Where its work is enqueued, for operations that are part of it.
  [[nodiscard]] virtual StreamRef stream() const { return {}; }
};

// Reads a device's memory to the host beside the device's own work, on another thread.
//
//   reader.begin();                                       on the thread that gives the device its work
//   std::thread([&] { reader.read(blocks, write); });     while the device is given work that reads them too
class DeviceReader {
 public:
  static constexpr int64_t kMostBytes = int64_t{16} << 20;  // of a block, packed
  using Take = std::function<void(std::span<const std::byte>)>;

  virtual ~DeviceReader() = default;
  // What is read from now on is what the work that the device was given so far leaves.
  virtual void begin() = 0;
  // Copies the logical elements of each block, row after row without padding, and hands them to `take`, in
  // order and on this thread. What a block views must not change until its take() has begun; a backend may
  // read ahead by one.
  virtual void read(std::span<const Tensor> blocks, const Take& take) = 0;
  // Whether read() may be called on another thread than begin().
  [[nodiscard]] virtual bool beside() const { return true; }
};

// Work that is run again and again: the same calls on the same memory each time. What differs from run to run
// lies in pinned buffers. A backend may capture the calls once and replay them after that, as a CUDA graph,
// so the work must not wait for the device: no upload(), download() or synchronize().
class GraphCapture {
 public:
  virtual ~GraphCapture() = default;
  virtual void run(const std::function<void()>& work) { work(); }
  // Whether the last run repeated a recording.
  [[nodiscard]] virtual bool replayed() const { return false; }
};

class Device {
 public:
  virtual ~Device() = default;

  [[nodiscard]] virtual Backend backend() const = 0;
  // Where its work is enqueued.
  [[nodiscard]] virtual StreamRef stream() const { return {.backend = backend()}; }

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
  virtual void send(const PinnedBuffer& /*buffer*/) {}
  // Enqueues the copy of the tensor to its image, which is there after synchronize().
  virtual void receive(const PinnedBuffer& /*buffer*/) {}
  virtual std::unique_ptr<GraphCapture> make_graph_capture() { return std::make_unique<GraphCapture>(); }

  // From now on every wait of the host for this device is made by guard(wait), which calls wait() once: for
  // who must notice that it does not end. Empty: no longer. Only where waits may last for others' sake.
  using WaitGuard = std::function<void(const std::function<void()>& wait)>;
  virtual void guard_waits(WaitGuard /*guard*/) {}

  // Work beside the device's own, on a thread or stream of its own.
  virtual std::unique_ptr<CommStream> make_comm_stream();
  // Reads this device's memory beside its work; the device outlives it.
  virtual std::unique_ptr<DeviceReader> make_reader();

  // Named scopes of work in a profiler's time line, with the FLOPs of their GEMMs where these are
  // counted (ProfileScope).
  virtual void push_scope(const char* /*name*/, double /*flops*/) {}
  virtual void pop_scope() {}

  virtual Gemm& gemm() = 0;
  virtual Attention& attention() = 0;
};

// A string literal, and nothing else: who listens keeps the pointer.
struct ProfileScopeName {
  consteval ProfileScopeName(const char* literal) : text(literal) {}  // NOLINT: a literal stands for itself
  const char* text;
};

// A named scope of work: in a profiler's time line (NVTX on an NVIDIA GPU) and in the table of --profile
// (profiling.h), nowhere else.
//
//   const ProfileScope scope(device, "gradient norm");
//   const ProfileScope scope(device, "GEMM y", flops_of(call));
class ProfileScope {
 public:
  // `flops`: of the GEMMs inside; 0 where they are not counted.
  ProfileScope(Device& device, ProfileScopeName name, double flops = 0) : device_(device) {
    device_.push_scope(name.text, flops);
  }
  ~ProfileScope() { device_.pop_scope(); }
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  Device& device_;
};

}  // namespace mpt
