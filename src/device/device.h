// The backend interface except iteration (exec.h): memory, copies, GEMMs, attention, and work that
// runs in parallel with the device's own.
//
// Calls may be asynchronous with respect to the host; synchronize() waits for all of them. upload()
// and download() are complete on return. send() and receive() only enqueue copies between a tensor
// and its image in host memory (memory.h), so a step need not wait for the host.
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

// A backend's stream. `native` is opaque outside the backend: a CUDA stream, or null for a device
// that only plans.
struct StreamRef {
  Backend backend = Backend::kCpu;
  void* native = nullptr;

  bool operator==(const StreamRef&) const = default;
};

// A communication stream: work in parallel with the device's own, such as collectives that overlap
// with computation.
class CommStream {
 public:
  using Event = int64_t;  // number of the run() call, from 1

  virtual ~CommStream() = default;
  // Enqueues work that starts after everything given to the device so far and after all earlier
  // work on this stream. It runs concurrently with later device work. `work` may be called on
  // another thread, once and in order: everything it uses must live until then, and it must not
  // enqueue work on the device's own stream. On a CUDA backend it is called at once and enqueues on
  // stream().
  virtual Event run(std::function<void()> work) = 0;
  // Makes later device work start after `event`. Throws what the work threw, and again on every
  // later call: a stream whose work failed runs nothing more.
  virtual void wait(Event event) = 0;
  // Waits until no work is running, so that memory it uses can be freed. Drops work that has not
  // started, as after an error; a stream that dropped work runs nothing more, and wait() throws.
  virtual void settle() = 0;

  // Within the stream's work: copies all bytes of `from`; both tensors must be contiguous and of
  // equal size.
  virtual void copy(const Tensor& from, const Tensor& to);
  // Stream on which its work is enqueued, for operations that are part of it.
  [[nodiscard]] virtual StreamRef stream() const { return {}; }
};

// Copies device memory to the host concurrently with the device's own work, on another thread.
//
//   reader.begin();                                      on the thread that enqueues device work
//   std::thread([&] { reader.read(blocks, write); });    while the device runs work that reads them
class DeviceReader {
 public:
  static constexpr int64_t kMostBytes = int64_t{16} << 20;  // largest block, packed
  using Take = std::function<void(std::span<const std::byte>)>;

  virtual ~DeviceReader() = default;
  // Later reads see memory as left by the work given to the device so far.
  virtual void begin() = 0;
  // Copies the logical elements of each block, row after row without padding, and passes them to
  // `take`, in order and on this thread. The memory of a block must not change until its take() has
  // started. A backend may read ahead by one block.
  virtual void read(std::span<const Tensor> blocks, const Take& take) = 0;
  // Whether read() may run on a different thread than begin().
  [[nodiscard]] virtual bool beside() const { return true; }
};

// Repeated work: the same calls on the same memory each time. Values that vary between runs are in
// pinned buffers. A backend may capture the calls once and replay them, as a CUDA graph, so the
// work must not wait for the device: no upload(), download() or synchronize().
class GraphCapture {
 public:
  virtual ~GraphCapture() = default;
  virtual void run(const std::function<void()>& work) { work(); }
  // Whether the last run was a replay.
  [[nodiscard]] virtual bool replayed() const { return false; }
};

class Device {
 public:
  virtual ~Device() = default;

  [[nodiscard]] virtual Backend backend() const = 0;
  // Stream of the device's work.
  [[nodiscard]] virtual StreamRef stream() const { return {.backend = backend()}; }

  [[nodiscard]] virtual std::string name() const = 0;       // "CPU: AMD EPYC, 2 threads"
  [[nodiscard]] virtual std::string libraries() const = 0;  // GEMM libraries, readable
  [[nodiscard]] virtual int64_t memory_bytes() const = 0;   // available to a run
  // Alignment of buffers and granularity of their sizes, in bytes; for a PlanningAllocator.
  [[nodiscard]] virtual int64_t alignment() const { return kAlignment; }
  virtual std::unique_ptr<Allocator> make_allocator() = 0;

  // Copies the logical elements of a tensor, row after row without padding, to or from host memory.
  virtual void download(const Tensor& source, std::byte* target) = 0;
  virtual void upload(const std::byte* source, const Tensor& target) = 0;
  virtual void synchronize() = 0;

  // Enqueues a copy of the image to its tensor. The image is read when the copy runs: it must not
  // change until synchronize().
  virtual void send(const PinnedBuffer& /*buffer*/) {}
  // Enqueues a copy of the tensor to its image, which is valid after synchronize().
  virtual void receive(const PinnedBuffer& /*buffer*/) {}
  virtual std::unique_ptr<GraphCapture> make_graph_capture() {
    return std::make_unique<GraphCapture>();
  }

  // From now on, runs every host wait for this device through guard(wait), which must call wait()
  // once, so that a watchdog can detect hangs; pass {} to remove. Ignored by backends without waits
  // that depend on other ranks.
  using WaitGuard = std::function<void(const std::function<void()>& wait)>;
  virtual void guard_waits(WaitGuard /*guard*/) {}

  // A communication stream with its own thread or stream.
  virtual std::unique_ptr<CommStream> make_comm_stream();
  // Creates a reader of this device's memory; the device must outlive it.
  virtual std::unique_ptr<DeviceReader> make_reader();

  // Named scopes in a profiler's timeline, with the FLOPs of their GEMMs if counted (ProfileScope).
  virtual void push_scope(const char* /*name*/, double /*flops*/) {}
  virtual void pop_scope() {}

  virtual Gemm& gemm() = 0;
  virtual Attention& attention() = 0;
};

// Accepts string literals only, because listeners keep the pointer.
struct ProfileScopeName {
  consteval ProfileScopeName(const char* literal)
      : text(literal) {}  // NOLINT: a literal stands for itself
  const char* text;
};

// A named scope of work, visible in a profiler's timeline (NVTX on an NVIDIA GPU) and in the table
// of --profile (profiling.h).
//
//   const ProfileScope scope(device, "gradient norm");
//   const ProfileScope scope(device, "GEMM y", flops_of(call));
class ProfileScope {
 public:
  // `flops`: total of the GEMMs inside; 0 if not counted.
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
