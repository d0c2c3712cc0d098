#include "support/fake_cuda/runtime.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "support/fake_cuda/block_scheduler.h"
#include "support/fake_cuda/fake_cuda.h"
#include "support/fake_cuda/memory.h"
#include "support/fake_cuda/work_queue.h"

using fake_cuda::detail::device_memory;
using fake_cuda::detail::enqueue_item;
using fake_cuda::detail::Item;
using fake_cuda::detail::Mark;
using fake_cuda::detail::Opened;
using fake_cuda::detail::pinned_memory;
using fake_cuda::detail::Place;
using fake_cuda::detail::place_of;
using fake_cuda::detail::refuse;
using fake_cuda::detail::When;
using fake_cuda::detail::Work;
using fake_cuda::detail::WorkQueue;

namespace {

struct Capture {
  cudaStream_t origin = nullptr;
  std::set<cudaStream_t> streams;  // that have joined
  std::vector<Item> items;
  bool valid = true;
};

}  // namespace

struct CUgraph_st {
  std::vector<Item> items;
};
struct CUgraphExec_st {
  std::vector<Item> items;
};

struct CUstream_st {
  unsigned flags = 0;
  std::shared_ptr<Capture> capture{};
};
struct CUevent_st {
  unsigned flags = 0;
  std::shared_ptr<Capture> capture{};  // that recorded it last
  std::shared_ptr<Mark> mark{};        // of the latest record

  [[nodiscard]] bool pending() const { return mark != nullptr && !mark->reached; }
};

namespace {

constexpr size_t kDefaultShared = size_t{48} << 10, kMostShared = size_t{227} << 10;
constexpr size_t kMostPitch = (size_t{1} << 31) - 1;

struct Runtime {
  fake_cuda::Counters counters;
  cudaError_t last_error = cudaSuccess;
  cudaError_t sticky = cudaSuccess;
  std::string fault;
  cudaError_t fault_error = cudaSuccess;
  fake_cuda::detail::Direction direction = fake_cuda::detail::Direction::kForward;
  fake_cuda::Execution execution = fake_cuda::Execution::kAtOnce;
  fake_cuda::HostPointers host_pointers = fake_cuda::HostPointers::kRefused;
  int64_t device_bytes = int64_t{4} << 30;
  size_t most_pitch = kMostPitch;
  WorkQueue queue;
  std::set<std::shared_ptr<Capture>> captures;
  std::set<cudaStream_t> streams;
  std::map<const void*, size_t> shared_limits;  // for kernels that raised theirs
};

Runtime& runtime() {
  static Runtime the;
  return the;
}

cudaError_t note(cudaError_t error) {
  if (error != cudaSuccess) runtime().last_error = error;
  return error;
}

// --- when work runs ------------------------------------------------------------------------------
WorkQueue::Pick pick() {
  return runtime().execution == fake_cuda::Execution::kOvertaking ? WorkQueue::Pick::kLast
                                                                  : WorkQueue::Pick::kFirst;
}
bool is_blocking(cudaStream_t stream) {
  return stream != nullptr && (stream->flags & cudaStreamNonBlocking) == 0;
}

WorkQueue::Fault run_opened(const Work& work) {
  const Opened opened(device_memory());
  return work();
}

// Handles the result of work: a fault persists, and pending work is lost.
cudaError_t outcome(const WorkQueue::Fault& fault) {
  Runtime& r = runtime();
  if (!fault) return cudaSuccess;
  r.queue.clear();
  r.sticky = cudaErrorLaunchFailure;
  return refuse(cudaErrorLaunchFailure, *fault);
}
template <class RunSome>
cudaError_t run_some(const RunSome& run) {
  Runtime& r = runtime();
  if (r.sticky != cudaSuccess) {
    r.queue.clear();
    return note(r.sticky);
  }
  return outcome(run(r.queue));
}

cudaError_t run_pending() {
  return run_some([](WorkQueue& queue) { return queue.run_all(pick(), run_opened); });
}
// Runs the work that the stream's next work would wait for, also in other streams.
cudaError_t settle(cudaStream_t stream) {
  return run_some([=](WorkQueue& queue) {
    return queue.settle(stream, is_blocking(stream), pick(), run_opened);
  });
}
cudaError_t reach(const std::shared_ptr<Mark>& mark) {
  return run_some([&](WorkQueue& queue) { return queue.reach(mark, run_opened); });
}
cudaError_t run_now(const Work& work) {
  return run_some([&](WorkQueue& /*queue*/) { return run_opened(work); });
}

void invalidate_captures() {
  for (const auto& capture : runtime().captures) capture->valid = false;
}

// Refuses calls that would invalidate a capture: those that wait, allocate or use the default
// stream.
cudaError_t check_no_capture(const char* call) {
  if (runtime().captures.empty()) return cudaSuccess;
  invalidate_captures();
  return refuse(cudaErrorStreamCaptureUnsupported,
                fmt::format("{} during the capture of a stream", call));
}

cudaError_t check_damage(const std::optional<std::string>& damage) {
  if (!damage) return cudaSuccess;
  runtime().sticky = cudaErrorIllegalAddress;
  return refuse(cudaErrorIllegalAddress, *damage);
}
cudaError_t check_guards() {
  const Opened opened(device_memory());
  auto damage = device_memory().damage_of_some();
  if (!damage) damage = pinned_memory().damage_of_some();
  return check_damage(damage);
}
cudaError_t check_guards_of(const fake_cuda::detail::Arena& arena, void* pointer) {
  const Opened opened(device_memory());
  return check_damage(arena.damage_at(pointer));
}

template <class RunSome>
cudaError_t synchronize(const char* call, const RunSome& run) {
  if (const cudaError_t error = check_no_capture(call); error != cudaSuccess) return error;
  ++runtime().counters.synchronisations;
  if (const cudaError_t error = run(); error != cudaSuccess) return error;
  return check_guards();
}

cudaError_t check_stream(cudaStream_t stream) {
  if (stream == nullptr || runtime().streams.contains(stream)) return cudaSuccess;
  return refuse(cudaErrorInvalidResourceHandle, "there is no such stream");
}

bool is_device(cudaMemcpyKind kind, cudaMemcpyKind one, cudaMemcpyKind other) {
  return kind == one || kind == other;
}

// A side of a copy must match the kind of copy and lie within one allocation.
cudaError_t check_side(const void* pointer, size_t bytes, bool on_device, const char* side) {
  if (runtime().host_pointers == fake_cuda::HostPointers::kAllowed) return cudaSuccess;
  const Place place = place_of(pointer);
  if ((place == Place::kDevice) != on_device)
    return refuse(cudaErrorInvalidValue, fmt::format("the {} of a copy is {} the GPU's memory",
                                                     side, on_device ? "not in" : "in"));
  const bool inside =
      place == Place::kPageable ||
      (place == Place::kDevice ? device_memory() : pinned_memory()).holds(pointer, bytes);
  if (inside) return cudaSuccess;
  return refuse(
      cudaErrorInvalidValue,
      fmt::format("the {} of a copy, {} bytes, is not within one allocation", side, bytes));
}

struct Copy {
  void* target;
  size_t target_pitch;
  const void* source;
  size_t source_pitch, width, height;
  cudaMemcpyKind kind;

  [[nodiscard]] size_t target_bytes() const {
    return height == 0 ? 0 : (height - 1) * target_pitch + width;
  }
  [[nodiscard]] size_t source_bytes() const {
    return height == 0 ? 0 : (height - 1) * source_pitch + width;
  }
  [[nodiscard]] bool pageable() const {
    return place_of(target) == Place::kPageable || place_of(source) == Place::kPageable;
  }
  [[nodiscard]] bool to_device() const {
    return kind == cudaMemcpyDefault
               ? place_of(target) == Place::kDevice
               : is_device(kind, cudaMemcpyHostToDevice, cudaMemcpyDeviceToDevice);
  }
  [[nodiscard]] bool from_device() const {
    return kind == cudaMemcpyDefault
               ? place_of(source) == Place::kDevice
               : is_device(kind, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice);
  }
};

cudaError_t check_copy(const Copy& copy) {
  if (copy.width > copy.target_pitch || copy.width > copy.source_pitch)
    return refuse(cudaErrorInvalidValue,
                  fmt::format("rows of {} bytes in pitches of {} and {}", copy.width,
                              copy.target_pitch, copy.source_pitch));
  if (const auto error = check_side(copy.target, copy.target_bytes(), copy.to_device(), "target"))
    return error;
  return check_side(copy.source, copy.source_bytes(), copy.from_device(), "source");
}

cudaError_t check_pitches(const Copy& copy) {
  const size_t pitch = std::max(copy.target_pitch, copy.source_pitch);
  if (pitch <= runtime().most_pitch) return cudaSuccess;
  return refuse(cudaErrorInvalidPitchValue,
                fmt::format("a pitch of {} bytes, the GPU takes {}", pitch, runtime().most_pitch));
}

Work work_of(const Copy& copy) {
  return [copy]() -> std::optional<std::string> {
    ++runtime().counters.copies;
    for (size_t row = 0; row < copy.height; ++row)
      memmove(static_cast<std::byte*>(copy.target) + row * copy.target_pitch,
              static_cast<const std::byte*>(copy.source) + row * copy.source_pitch, copy.width);
    return std::nullopt;
  };
}

// The rest of a copy whose source is now in the driver's buffer.
Work staged_work_of(Copy copy) {
  const auto* const start = static_cast<const std::byte*>(copy.source);
  const auto buffer =
      std::make_shared<const std::vector<std::byte>>(start, start + copy.source_bytes());
  copy.source = buffer->data();
  return [work = work_of(copy), buffer] { return work(); };
}

// Copies on the legacy stream. When the call returns, data sent to the host has arrived, and so has
// data from pinned memory; pageable memory has been read into the driver's buffers; and a copy
// within the GPU need not have started.
cudaError_t copy_now(const Copy& copy) {
  if (const auto error = check_copy(copy)) return error;
  if (const auto error = check_no_capture("a copy that waits")) return error;
  if (copy.to_device() && copy.from_device())
    return fake_cuda::detail::enqueue(nullptr, work_of(copy));
  ++runtime().counters.synchronisations;
  if (const auto error = settle(nullptr)) return error;
  const bool staged = copy.to_device() && copy.pageable();
  if (staged && runtime().host_pointers == fake_cuda::HostPointers::kRefused)
    return fake_cuda::detail::enqueue(nullptr, staged_work_of(copy));
  if (const auto error = run_now(work_of(copy))) return error;
  return check_guards();
}

cudaError_t copy_later(const Copy& copy, cudaStream_t stream) {
  if (const auto error = check_copy(copy)) return error;
  if (!copy.pageable() || runtime().host_pointers == fake_cuda::HostPointers::kAllowed)
    return fake_cuda::detail::enqueue(stream, work_of(copy));
  // Memory that is not pinned goes through the driver's buffers, and the call may wait for that.
  if (const auto error = check_no_capture("a copy of memory that is not pinned")) return error;
  ++runtime().counters.synchronisations;
  if (copy.to_device())
    return enqueue_item({.stream = stream, .when = When::kAsOwed, .work = staged_work_of(copy)});
  if (const auto error = fake_cuda::detail::enqueue(stream, work_of(copy))) return error;
  return settle(stream);
}

cudaError_t allocated(void** pointer, std::byte* memory) {
  *pointer = memory;
  fake_cuda::Counters& c = runtime().counters;
  ++c.allocations;
  c.peak_bytes = std::max(c.peak_bytes, device_memory().live_bytes());
  return cudaSuccess;
}

cudaError_t release(fake_cuda::detail::Arena& arena, void* pointer, const char* call) {
  if (pointer == nullptr) return cudaSuccess;
  if (const auto error = check_no_capture(call)) return error;
  ++runtime().counters.synchronisations;
  if (const auto error = run_pending()) return error;
  const cudaError_t damage = check_guards_of(arena, pointer);
  if (!arena.free(pointer))
    return refuse(cudaErrorInvalidValue, fmt::format("{} of what was never allocated", call));
  return damage;
}

cudaError_t check_shape(const cudaLaunchConfig_t& config, const void* kernel) {
  const dim3 g = config.gridDim, b = config.blockDim;
  const bool grid =
      g.x > 0 && g.y > 0 && g.z > 0 && g.x <= 0x7fffffffu && g.y <= 65535 && g.z <= 65535;
  const bool block = b.x > 0 && b.y > 0 && b.z > 0 && b.x <= 1024 && b.y <= 1024 && b.z <= 64 &&
                     uint64_t{b.x} * b.y * b.z <= 1024;
  if (!grid || !block)
    return refuse(
        cudaErrorInvalidConfiguration,
        fmt::format("a grid of {}x{}x{} blocks of {}x{}x{} threads", g.x, g.y, g.z, b.x, b.y, b.z));
  const auto raised = runtime().shared_limits.find(kernel);
  const size_t most = raised == runtime().shared_limits.end() ? kDefaultShared : raised->second;
  if (config.dynamicSmemBytes > most)
    return refuse(cudaErrorInvalidValue,
                  fmt::format("{} bytes of dynamic shared memory, this kernel may take {}",
                              config.dynamicSmemBytes, most));
  return cudaSuccess;
}

cudaError_t check_arguments(const fake_cuda::detail::Kernel& kernel) {
  if (runtime().host_pointers == fake_cuda::HostPointers::kAllowed) return cudaSuccess;
  for (size_t argument = 0; argument < kernel.arguments.size(); ++argument) {
    const std::vector<std::byte>& bytes = kernel.arguments[argument];
    for (size_t at = 0; at + sizeof(uint64_t) <= bytes.size(); at += sizeof(uint64_t)) {
      uint64_t word = 0;
      memcpy(&word, bytes.data() + at, sizeof word);
      if (fake_cuda::detail::is_host_address(word))
        return refuse(
            cudaErrorIllegalAddress,
            fmt::format("argument {} of a kernel holds, at byte {}, the host address {:#x}",
                        argument, at, word));
    }
  }
  return cudaSuccess;
}

// Whether the origin of a capture waits, directly or not, for all work of the streams that joined
// it.
bool all_joined(const Capture& capture) {
  using Counts = std::map<cudaStream_t, int64_t>;  // of items, by stream
  std::map<cudaStream_t, Counts> seen;
  std::map<const Mark*, Counts> at_mark;
  Counts given;
  for (const Item& item : capture.items) {
    Counts& own = seen[item.stream];
    if (item.after)
      for (const auto& [stream, count] : at_mark[item.after.get()])
        own[stream] = std::max(own[stream], count);
    if (item.work) own[item.stream] = ++given[item.stream];
    if (item.reaches) at_mark[item.reaches.get()] = own;
  }
  const Counts& joined = seen[capture.origin];
  return std::all_of(given.begin(), given.end(), [&](const auto& stream) {
    const auto found = joined.find(stream.first);
    return found != joined.end() && found->second == stream.second;
  });
}

}  // namespace

namespace fake_cuda::detail {

cudaError_t refuse(cudaError_t error, std::string why) {
  runtime().fault = std::move(why);
  runtime().fault_error = error;
  return note(error);
}

cudaError_t enqueue_item(Item item) {
  Runtime& r = runtime();
  if (r.sticky != cudaSuccess) return note(r.sticky);
  if (const auto error = check_stream(item.stream)) return error;
  if (item.stream == nullptr && !r.captures.empty()) {
    invalidate_captures();
    return refuse(cudaErrorStreamCaptureImplicit,
                  "work on the default stream during the capture of another");
  }
  if (item.stream != nullptr && item.stream->capture != nullptr) {
    if (!item.stream->capture->valid)
      return refuse(cudaErrorStreamCaptureInvalidated, "the capture had become invalid");
    item.stream->capture->items.push_back(std::move(item));
    return cudaSuccess;
  }
  item.blocking = is_blocking(item.stream);
  const bool now = r.execution == fake_cuda::Execution::kAtOnce && item.stream != nullptr &&
                   item.when == When::kAsSet;
  r.queue.add(std::move(item));
  if (!now) return cudaSuccess;
  return outcome(r.queue.run_latest(run_opened));
}

cudaError_t enqueue(cudaStream_t stream, Work work) {
  return enqueue_item({.stream = stream, .work = std::move(work)});
}

void count_gemm() { ++runtime().counters.gemms; }

cudaError_t launch(const cudaLaunchConfig_t& config, Kernel kernel) {
  if (const auto error = check_shape(config, kernel.address)) return error;
  if (const auto error = check_arguments(kernel)) return error;
  Launch launch{.grid = config.gridDim,
                .block = config.blockDim,
                .shared_bytes = config.dynamicSmemBytes,
                .kernel = std::move(kernel)};
  return enqueue(config.stream, [launch = std::move(launch)] {
    ++runtime().counters.launches;
    return run_grid(launch, runtime().direction);
  });
}

}  // namespace fake_cuda::detail

namespace fake_cuda {

Counters counters() {
  Counters c = runtime().counters;
  c.live_allocations = device_memory().live_allocations() + pinned_memory().live_allocations();
  c.live_bytes = device_memory().live_bytes();
  return c;
}
void reset_counters() {
  runtime().counters = {};
  runtime().counters.peak_bytes = device_memory().live_bytes();
}
void set_order(Order order) {
  runtime().direction =
      order == Order::kForward ? detail::Direction::kForward : detail::Direction::kBackward;
}
void set_execution(Execution execution) {
  static_cast<void>(run_pending());
  runtime().execution = execution;
}
void set_races(Races races) { detail::watch_races(races); }
void set_host_pointers(HostPointers host_pointers) { runtime().host_pointers = host_pointers; }
void set_device_bytes(int64_t bytes) { runtime().device_bytes = bytes; }
void set_most_pitch(int64_t bytes) { runtime().most_pitch = size_t(bytes); }
std::string latest_fault() { return runtime().fault; }

void recover() {
  Runtime& r = runtime();
  r.queue.clear();
  for (const cudaStream_t stream : r.streams) stream->capture.reset();
  r.captures.clear();
  r.last_error = r.sticky = r.fault_error = cudaSuccess;
  r.fault.clear();
}

}  // namespace fake_cuda

// --- errors --------------------------------------------------------------------------------------
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define NAME(x) \
  case x:       \
    return #x
    NAME(cudaSuccess);
    NAME(cudaErrorInvalidValue);
    NAME(cudaErrorMemoryAllocation);
    NAME(cudaErrorInitializationError);
    NAME(cudaErrorInvalidConfiguration);
    NAME(cudaErrorInvalidPitchValue);
    NAME(cudaErrorInvalidDevicePointer);
    NAME(cudaErrorInvalidMemcpyDirection);
    NAME(cudaErrorInsufficientDriver);
    NAME(cudaErrorNoDevice);
    NAME(cudaErrorInvalidDevice);
    NAME(cudaErrorInvalidResourceHandle);
    NAME(cudaErrorIllegalState);
    NAME(cudaErrorNotReady);
    NAME(cudaErrorIllegalAddress);
    NAME(cudaErrorLaunchFailure);
    NAME(cudaErrorNotSupported);
    NAME(cudaErrorStreamCaptureUnsupported);
    NAME(cudaErrorStreamCaptureInvalidated);
    NAME(cudaErrorStreamCaptureUnmatched);
    NAME(cudaErrorStreamCaptureUnjoined);
    NAME(cudaErrorStreamCaptureIsolation);
    NAME(cudaErrorStreamCaptureImplicit);
    NAME(cudaErrorCapturedEvent);
#undef NAME
  }
  return "cudaErrorUnknown";
}
const char* cudaGetErrorString(cudaError_t error) {
  const Runtime& r = runtime();
  return error == r.fault_error && !r.fault.empty() ? r.fault.c_str() : cudaGetErrorName(error);
}
cudaError_t cudaGetLastError() {
  Runtime& r = runtime();
  return std::exchange(r.last_error, r.sticky);
}
cudaError_t cudaPeekAtLastError() { return runtime().last_error; }

// --- the device ----------------------------------------------------------------------------------
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess
                     : refuse(cudaErrorInvalidDevice, fmt::format("device {} of 1", device));
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (const auto error = cudaSetDevice(device)) return error;
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "fake GPU");
  properties->totalGlobalMem = size_t(runtime().device_bytes);
  properties->sharedMemPerBlock = kDefaultShared;
  properties->sharedMemPerBlockOptin = kMostShared;
  properties->sharedMemPerMultiprocessor = size_t{228} << 10;
  properties->major = 9;
  properties->minor = 0;
  properties->memPitch = runtime().most_pitch;
  properties->multiProcessorCount = 4;
  properties->warpSize = warpSize;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->l2CacheSize = 1 << 20;
  properties->memoryBusWidth = 64;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  if (const auto error = cudaGetDeviceProperties(&p, device)) return error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = p.maxThreadsPerBlock;
      return cudaSuccess;
    case cudaDevAttrMaxPitch:
      *value = int(p.memPitch);
      return cudaSuccess;
    case cudaDevAttrWarpSize:
      *value = p.warpSize;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = p.multiProcessorCount;
      return cudaSuccess;
    case cudaDevAttrL2CacheSize:
      *value = p.l2CacheSize;
      return cudaSuccess;
    case cudaDevAttrAsyncEngineCount:
      *value = 0;  // it serves only one thread
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = p.major;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = p.minor;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = int(p.sharedMemPerBlockOptin);
      return cudaSuccess;
  }
  return refuse(cudaErrorInvalidValue, fmt::format("no attribute {}", int(attribute)));
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return synchronize("cudaDeviceSynchronize", run_pending); }

// --- memory --------------------------------------------------------------------------------------
cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  if (const auto error = check_no_capture("cudaMalloc")) return error;
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  const int64_t left = runtime().device_bytes - device_memory().live_bytes();
  if (left < 0 || bytes > size_t(left))
    return refuse(cudaErrorMemoryAllocation,
                  fmt::format("{} bytes of {} that are left", bytes, left));
  return allocated(pointer, device_memory().allocate(bytes));
}
cudaError_t cudaFree(void* pointer) { return release(device_memory(), pointer, "cudaFree"); }
cudaError_t cudaMallocHost(void** pointer, size_t bytes, unsigned flags) {
  return cudaHostAlloc(pointer, bytes, flags);
}
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned /*flags*/) {
  if (const auto error = check_no_capture("cudaHostAlloc")) return error;
  *pointer = nullptr;
  return bytes == 0 ? cudaSuccess : allocated(pointer, pinned_memory().allocate(bytes));
}
cudaError_t cudaFreeHost(void* pointer) {
  return release(pinned_memory(), pointer, "cudaFreeHost");
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = size_t(runtime().device_bytes);
  *free = size_t(std::max<int64_t>(0, runtime().device_bytes - device_memory().live_bytes()));
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* target, const void* source, size_t bytes, cudaMemcpyKind kind) {
  return copy_now({target, bytes, source, bytes, bytes, 1, kind});
}
cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return copy_later({target, bytes, source, bytes, bytes, 1, kind}, stream);
}
cudaError_t cudaMemcpy2D(void* target, size_t target_pitch, const void* source, size_t source_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
  const Copy copy{target, target_pitch, source, source_pitch, width, height, kind};
  if (const auto error = check_pitches(copy)) return error;
  return copy_now(copy);
}
cudaError_t cudaMemcpy2DAsync(void* target, size_t target_pitch, const void* source,
                              size_t source_pitch, size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  const Copy copy{target, target_pitch, source, source_pitch, width, height, kind};
  if (const auto error = check_pitches(copy)) return error;
  return copy_later(copy, stream);
}
cudaError_t cudaMemset(void* target, int value, size_t bytes) {
  if (const auto error = check_no_capture("cudaMemset")) return error;
  return cudaMemsetAsync(target, value, bytes, nullptr);
}
cudaError_t cudaMemsetAsync(void* target, int value, size_t bytes, cudaStream_t stream) {
  if (const auto error = check_side(target, bytes, true, "target")) return error;
  return fake_cuda::detail::enqueue(stream, [=]() -> std::optional<std::string> {
    memset(target, value, bytes);
    return std::nullopt;
  });
}

// --- streams and events --------------------------------------------------------------------------
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int /*priority*/) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  *stream = new CUstream_st{.flags = flags};
  runtime().streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (runtime().streams.erase(stream) == 0)
    return refuse(cudaErrorInvalidResourceHandle, "there is no such stream");
  const cudaError_t error = settle(stream);
  delete stream;
  return error;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const auto error = check_stream(stream)) return error;
  return synchronize("cudaStreamSynchronize", [=] { return settle(stream); });
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (const auto error = check_stream(stream)) return error;
  if (const auto error = check_no_capture("cudaStreamQuery")) return error;
  return runtime().queue.owes(stream, is_blocking(stream)) ? cudaErrorNotReady
                                                           : note(runtime().sticky);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  if (const auto error = check_stream(stream)) return error;
  const bool captured = event->capture != nullptr && runtime().captures.contains(event->capture);
  if (stream == nullptr && captured) return check_no_capture("a wait of the default stream");
  if (stream != nullptr && stream->capture != nullptr && stream->capture != event->capture) {
    stream->capture->valid = false;
    return refuse(cudaErrorStreamCaptureIsolation,
                  "a captured stream waits for an event outside of its capture");
  }
  if (event->capture != nullptr && !captured)
    return refuse(cudaErrorCapturedEvent,
                  "a stream waits for an event of a capture that has ended");
  if (captured) {
    stream->capture = event->capture;
    event->capture->streams.insert(stream);
  }
  return event->mark == nullptr ? cudaSuccess
                                : enqueue_item({.stream = stream, .after = event->mark});
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new CUevent_st{.flags = flags};
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const auto error = check_stream(stream)) return error;
  event->capture = stream == nullptr ? nullptr : stream->capture;
  event->mark = std::make_shared<Mark>();
  // Recording it does not run any owed work.
  const bool owed = runtime().queue.owes(stream, is_blocking(stream));
  return enqueue_item(
      {.stream = stream, .when = owed ? When::kAsOwed : When::kAsSet, .reaches = event->mark});
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->capture != nullptr)
    return refuse(cudaErrorCapturedEvent, "the host waits for an event of a capture");
  return synchronize("cudaEventSynchronize",
                     [=] { return event->mark == nullptr ? cudaSuccess : reach(event->mark); });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->capture != nullptr)
    return refuse(cudaErrorCapturedEvent, "the host asks for an event of a capture");
  return event->pending() ? cudaErrorNotReady : note(runtime().sticky);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  if (start->mark == nullptr || end->mark == nullptr ||
      ((start->flags | end->flags) & cudaEventDisableTiming) != 0)
    return refuse(cudaErrorInvalidResourceHandle,
                  "the time between events that were not recorded with one");
  if (start->capture != nullptr || end->capture != nullptr)
    return refuse(cudaErrorCapturedEvent, "the time of an event of a capture");
  if (start->pending() || end->pending()) return cudaErrorNotReady;
  *milliseconds =
      std::chrono::duration<float, std::milli>(end->mark->time - start->mark->time).count();
  return cudaSuccess;
}

// --- graphs --------------------------------------------------------------------------------------
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode /*mode*/) {
  if (stream == nullptr)
    return refuse(cudaErrorStreamCaptureUnsupported, "the default stream cannot be captured");
  if (const auto error = check_stream(stream)) return error;
  if (stream->capture != nullptr)
    return refuse(cudaErrorIllegalState, "the stream is being captured already");
  stream->capture = std::make_shared<Capture>();
  stream->capture->origin = stream;
  stream->capture->streams.insert(stream);
  runtime().captures.insert(stream->capture);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (const auto error = check_stream(stream)) return error;
  if (stream == nullptr || stream->capture == nullptr)
    return refuse(cudaErrorIllegalState, "the stream is not being captured");
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture->origin != stream)
    return refuse(cudaErrorStreamCaptureUnmatched, "the capture began on another stream");
  for (const cudaStream_t joined : capture->streams)
    if (runtime().streams.contains(joined)) joined->capture.reset();
  runtime().captures.erase(capture);
  if (!capture->valid)
    return refuse(cudaErrorStreamCaptureInvalidated, "the capture had become invalid");
  if (!all_joined(*capture))
    return refuse(
        cudaErrorStreamCaptureUnjoined,
        "the captured stream does not wait for all work of a stream that joined the capture");
  ++runtime().counters.captures;
  *graph = new CUgraph_st{std::move(capture->items)};
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  if (const auto error = check_stream(stream)) return error;
  *status = cudaStreamCaptureStatusNone;
  if (stream != nullptr && stream->capture != nullptr)
    *status =
        stream->capture->valid ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long /*flags*/) {
  *executable = new CUgraphExec_st{graph->items};
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t /*executable*/, cudaStream_t stream) {
  return check_stream(stream);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  ++runtime().counters.graph_launches;
  return fake_cuda::detail::enqueue(
      stream, [items = executable->items]() -> std::optional<std::string> {
        for (const Item& item : items)
          if (item.reaches) item.reaches->reached = false;
        WorkQueue queue;
        for (const Item& item : items) queue.add(item);
        return queue.run_all(pick(), [](const Work& work) { return work(); });
      });
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, CUgraphNode_st** /*nodes*/, size_t* count) {
  *count = size_t(std::count_if(graph->items.begin(), graph->items.end(),
                                [](const Item& item) { return bool(item.work); }));
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  const cudaError_t error = run_pending();
  delete executable;
  return error;
}

// --- launches ------------------------------------------------------------------------------------
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || size_t(value) > kMostShared)
    return refuse(cudaErrorInvalidValue,
                  fmt::format("{} bytes of dynamic shared memory; a kernel may take at most {}",
                              value, kMostShared));
  runtime().shared_limits[kernel] = size_t(value);
  return cudaSuccess;
}
