// Stand-in for the CUDA runtime: g++ compiles the GPU sources unchanged, and tests run them on any
// machine.
//
// Covers only what this program uses, with NVIDIA's names and values. Threads of a block are
// fibers, blocks run one after another, and device memory is separate host memory. Test controls
// are in ../fake_cuda.h.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#define CUDART_VERSION 13000
#define CUDART_CB

// --- the language --------------------------------------------------------------------------------
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(...)
#ifndef __forceinline__
#define __forceinline__ inline __attribute__((always_inline))
#endif

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// Indices of the running thread.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

// --- errors --------------------------------------------------------------------------------------
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInitializationError = 3,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidPitchValue = 12,
  cudaErrorInvalidDevicePointer = 17,
  cudaErrorInvalidMemcpyDirection = 21,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorIllegalState = 401,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchFailure = 719,
  cudaErrorNotSupported = 801,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureUnmatched = 903,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorStreamCaptureImplicit = 906,
  cudaErrorCapturedEvent = 907,
};
const char* cudaGetErrorName(cudaError_t error);
// For a launch failure, also says which thread of which block waits for what.
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

// --- the device ----------------------------------------------------------------------------------
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  size_t memPitch;
  size_t sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
  int major, minor;
  int multiProcessorCount;
  int warpSize;
  int maxThreadsPerBlock, maxThreadsPerMultiProcessor;
  int l2CacheSize;
  int memoryBusWidth;
};
enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrMaxPitch = 11,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrAsyncEngineCount = 40,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaDeviceSynchronize();

// --- memory --------------------------------------------------------------------------------------
enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4,
};
inline constexpr unsigned cudaHostAllocDefault = 0, cudaHostAllocPortable = 1,
                          cudaHostAllocMapped = 2, cudaHostAllocWriteCombined = 4;
struct CUstream_st;
using cudaStream_t = CUstream_st*;

cudaError_t cudaMalloc(void** pointer, size_t bytes);
cudaError_t cudaFree(void* pointer);
cudaError_t cudaMallocHost(void** pointer, size_t bytes, unsigned flags = 0);
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* pointer);
template <class T>
cudaError_t cudaMalloc(T** pointer, size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(pointer), bytes);
}
template <class T>
cudaError_t cudaMallocHost(T** pointer, size_t bytes, unsigned flags = 0) {
  return cudaMallocHost(reinterpret_cast<void**>(pointer), bytes, flags);
}
template <class T>
cudaError_t cudaHostAlloc(T** pointer, size_t bytes, unsigned flags) {
  return cudaHostAlloc(reinterpret_cast<void**>(pointer), bytes, flags);
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaMemcpy(void* target, const void* source, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemcpy2D(void* target, size_t target_pitch, const void* source, size_t source_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind);
cudaError_t cudaMemcpy2DAsync(void* target, size_t target_pitch, const void* source,
                              size_t source_pitch, size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream = nullptr);
cudaError_t cudaMemset(void* target, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void* target, int value, size_t bytes, cudaStream_t stream = nullptr);

// --- streams, events, graphs ---------------------------------------------------------------------
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;
using cudaEvent_t = CUevent_st*;
using cudaGraph_t = CUgraph_st*;
using cudaGraphExec_t = CUgraphExec_st*;

inline constexpr unsigned cudaStreamDefault = 0, cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDefault = 0, cudaEventBlockingSync = 1,
                          cudaEventDisableTiming = 2;
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal = 0,
  cudaStreamCaptureModeThreadLocal = 1,
  cudaStreamCaptureModeRelaxed = 2,
};
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone = 0,
  cudaStreamCaptureStatusActive = 1,
  cudaStreamCaptureStatusInvalidated = 2,
};
cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
enum cudaGraphInstantiateFlags { cudaGraphInstantiateFlagUseNodePriority = 8 };
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long flags = 0);
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, struct CUgraphNode_st** nodes, size_t* count);

// --- launches ------------------------------------------------------------------------------------
struct cudaLaunchAttribute;
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9,
};
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute,
                                 int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

namespace fake_cuda::detail {

// Runs one thread of the kernel with the arguments of the launch.
struct Kernel {
  const void* address;
  std::function<void()> thread;
  std::vector<std::vector<std::byte>> arguments;  // for checking the pointers among them
};
cudaError_t launch(const cudaLaunchConfig_t& config, Kernel kernel);

// The bytes of a value with its padding zeroed, which may still hold half a host address. GCC 12
// clears too much in larger arrays of structures: addresses there are missed.
template <class T>
std::vector<std::byte> bytes_of(T value) {
#if __has_builtin(__builtin_clear_padding)  // not where clang-tidy reads this
  __builtin_clear_padding(&value);
#endif
  std::vector<std::byte> bytes(sizeof value);
  memcpy(bytes.data(), static_cast<const void*>(&value), sizeof value);
  return bytes;
}

}  // namespace fake_cuda::detail

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  static_assert((std::is_trivially_copyable_v<Parameters> && ...),
                "arguments are copied to the GPU byte by byte");
  using Tuple = std::tuple<Parameters...>;
  static_assert(sizeof(Tuple) <= 4096, "more arguments than every GPU takes");
  const auto values = std::make_shared<const Tuple>(std::forward<Arguments>(arguments)...);
  std::vector<std::vector<std::byte>> bytes;
  std::apply(
      [&bytes](const auto&... value) {
        (bytes.push_back(fake_cuda::detail::bytes_of(value)), ...);
      },
      *values);
  return fake_cuda::detail::launch(*config,
                                   {.address = reinterpret_cast<const void*>(kernel),
                                    .thread = [kernel, values] { std::apply(kernel, *values); },
                                    .arguments = std::move(bytes)});
}

// --- what threads do together --------------------------------------------------------------------
namespace fake_cuda::detail {

enum class Collective : uint8_t { kNone, kSyncBlock, kSyncWarp, kShuffle, kVote, kReduce };
struct Meeting {
  Collective kind = Collective::kNone;
  unsigned mask = 0;
  uint64_t value = 0;
  int source_lane = 0;  // for a shuffle
  uint64_t (*fold)(uint64_t,
                   uint64_t) = nullptr;  // for a reduction, or a block barrier with a result
};
// Waits for the other threads and returns the shuffled, voted or reduced value.
uint64_t meet(const Meeting& meeting);
[[nodiscard]] int lane_of_this_thread();
void* dynamic_shared_memory();
// Ends the kernel with an error.
[[noreturn]] void trap(const char* why);

template <class T>
uint64_t packed(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
T unpacked(uint64_t bits) {
  T value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
T shuffle(unsigned mask, T value, int source_lane) {
  return unpacked<T>(meet({.kind = Collective::kShuffle,
                           .mask = mask,
                           .value = packed(value),
                           .source_lane = source_lane}));
}
template <class T>
inline constexpr bool kShuffles = std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8);

}  // namespace fake_cuda::detail

inline void __syncthreads() {
  fake_cuda::detail::meet({.kind = fake_cuda::detail::Collective::kSyncBlock});
}
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  fake_cuda::detail::meet({.kind = fake_cuda::detail::Collective::kSyncWarp, .mask = mask});
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return static_cast<unsigned>(
      fake_cuda::detail::meet({.kind = fake_cuda::detail::Collective::kVote,
                               .mask = mask,
                               .value = predicate != 0 ? 1u : 0u}));
}
inline int __any_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) == mask ? 1 : 0;
}

template <class T>
requires fake_cuda::detail::kShuffles<T> T __shfl_sync(unsigned mask, T value, int source,
                                                       int width = 32) {
  const int lane = fake_cuda::detail::lane_of_this_thread();
  return fake_cuda::detail::shuffle(mask, value, (lane & -width) | (source & (width - 1)));
}
template <class T>
requires fake_cuda::detail::kShuffles<T> T __shfl_xor_sync(unsigned mask, T value, int lane_mask,
                                                           int width = 32) {
  const int lane = fake_cuda::detail::lane_of_this_thread();
  const int source = lane ^ lane_mask;
  return fake_cuda::detail::shuffle(mask, value, source > (lane | (width - 1)) ? lane : source);
}
template <class T>
requires fake_cuda::detail::kShuffles<T> T __shfl_down_sync(unsigned mask, T value, unsigned delta,
                                                            int width = 32) {
  const int lane = fake_cuda::detail::lane_of_this_thread();
  const int source = lane + static_cast<int>(delta);
  return fake_cuda::detail::shuffle(mask, value, source > (lane | (width - 1)) ? lane : source);
}
template <class T>
requires fake_cuda::detail::kShuffles<T> T __shfl_up_sync(unsigned mask, T value, unsigned delta,
                                                          int width = 32) {
  const int lane = fake_cuda::detail::lane_of_this_thread();
  const int source = lane - static_cast<int>(delta);
  return fake_cuda::detail::shuffle(mask, value, source < (lane & -width) ? lane : source);
}

namespace fake_cuda::detail {

template <class T, class Fold>
T reduce(unsigned mask, T value, Fold) {
  return unpacked<T>(meet({.kind = Collective::kReduce,
                           .mask = mask,
                           .value = packed(value),
                           .fold = [](uint64_t a, uint64_t b) {
                             return packed(Fold{}(unpacked<T>(a), unpacked<T>(b)));
                           }}));
}
struct Larger {
  template <class T>
  T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};
struct Smaller {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? a : b;
  }
};
inline int block_result(int predicate, uint64_t (*fold)(uint64_t, uint64_t)) {
  return static_cast<int>(
      meet({.kind = Collective::kSyncBlock, .value = predicate != 0 ? 1u : 0u, .fold = fold}));
}

}  // namespace fake_cuda::detail

inline unsigned __reduce_max_sync(unsigned mask, unsigned value) {
  return fake_cuda::detail::reduce(mask, value, fake_cuda::detail::Larger{});
}
inline int __reduce_max_sync(unsigned mask, int value) {
  return fake_cuda::detail::reduce(mask, value, fake_cuda::detail::Larger{});
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned value) {
  return fake_cuda::detail::reduce(mask, value, fake_cuda::detail::Smaller{});
}
inline unsigned __reduce_add_sync(unsigned mask, unsigned value) {
  return fake_cuda::detail::reduce(mask, value, std::plus<unsigned>{});
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value) {
  return fake_cuda::detail::reduce(mask, value, std::bit_or<unsigned>{});
}
inline int __syncthreads_count(int predicate) {
  return fake_cuda::detail::block_result(predicate, [](uint64_t a, uint64_t b) { return a + b; });
}
inline int __syncthreads_or(int predicate) {
  return fake_cuda::detail::block_result(predicate, [](uint64_t a, uint64_t b) { return a | b; });
}
inline int __syncthreads_and(int predicate) {
  return fake_cuda::detail::block_result(predicate, [](uint64_t a, uint64_t b) { return a & b; });
}

// --- atomics: one thread runs at a time; the race detector does not see them ---------------------
namespace fake_cuda::detail {

template <class T, class F>
__attribute__((noinline, no_sanitize("thread"))) T exchange_with(T* address, const F& next) {
  const T before = *address;
  *address = next(before);
  return before;
}
template <class T>
inline constexpr bool kAtomicInteger =
    std::is_same_v<T, int> || std::is_same_v<T, unsigned> || std::is_same_v<T, unsigned long long>;
template <class T>
inline constexpr bool kAtomicNumber =
    kAtomicInteger<T> || std::is_same_v<T, float> || std::is_same_v<T, double>;

}  // namespace fake_cuda::detail

template <class T>
requires fake_cuda::detail::kAtomicNumber<T> T atomicAdd(T* address,
                                                         std::type_identity_t<T> value) {
  return fake_cuda::detail::exchange_with(address, [=](T x) { return x + value; });
}
template <class T>
requires fake_cuda::detail::kAtomicInteger<T> T atomicMax(T* address,
                                                          std::type_identity_t<T> value) {
  return fake_cuda::detail::exchange_with(address, [=](T x) { return x > value ? x : value; });
}
template <class T>
requires fake_cuda::detail::kAtomicInteger<T> T atomicMin(T* address,
                                                          std::type_identity_t<T> value) {
  return fake_cuda::detail::exchange_with(address, [=](T x) { return x < value ? x : value; });
}
template <class T>
requires fake_cuda::detail::kAtomicInteger<T> T atomicOr(T* address,
                                                         std::type_identity_t<T> value) {
  return fake_cuda::detail::exchange_with(address, [=](T x) { return x | value; });
}
template <class T>
requires fake_cuda::detail::kAtomicInteger<T> T atomicAnd(T* address,
                                                          std::type_identity_t<T> value) {
  return fake_cuda::detail::exchange_with(address, [=](T x) { return x & value; });
}
template <class T>
requires fake_cuda::detail::kAtomicInteger<T> T atomicExch(T* address,
                                                           std::type_identity_t<T> value) {
  return fake_cuda::detail::exchange_with(address, [=](T) { return value; });
}
template <class T>
requires fake_cuda::detail::kAtomicInteger<T> T atomicCAS(T* address,
                                                          std::type_identity_t<T> expected,
                                                          std::type_identity_t<T> value) {
  return fake_cuda::detail::exchange_with(address, [=](T x) { return x == expected ? value : x; });
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

// --- arithmetic ----------------------------------------------------------------------------------
inline int __float_as_int(float x) {
  return fake_cuda::detail::unpacked<int>(fake_cuda::detail::packed(x));
}
inline unsigned __float_as_uint(float x) {
  return fake_cuda::detail::unpacked<unsigned>(fake_cuda::detail::packed(x));
}
inline float __int_as_float(int x) {
  return fake_cuda::detail::unpacked<float>(fake_cuda::detail::packed(x));
}
inline float __uint_as_float(unsigned x) {
  return fake_cuda::detail::unpacked<float>(fake_cuda::detail::packed(x));
}
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
template <class T>
T __ldg(const T* address) {
  return *address;
}
[[noreturn]] inline void __trap() { fake_cuda::detail::trap("__trap()"); }
