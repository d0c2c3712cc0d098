// The fake GPU itself: it runs everything a GPU runs, and reports errors that would hang a GPU or
// go unnoticed.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "cuda/fake_cuda_fixture.h"
#include "support/expect_error.h"

namespace mpt {
namespace {

using fake_cuda::Execution;
using fake_cuda::Order;
using FakeCuda = test::FakeCudaTest;

__global__ void index_kernel(int* out) {
  out[blockIdx.x * blockDim.x + threadIdx.x] = int(1000 * blockIdx.x + threadIdx.x);
}

TEST_F(FakeCuda, RunsEveryThreadOfEveryBlock) {
  int* const out = device_array(std::vector<int>(3 * 70, -1));
  launch(index_kernel, shape(3, 70), out);
  const std::vector<int> values = host_array(out, 3 * 70);
  for (int b = 0; b < 3; ++b)
    for (int t = 0; t < 70; ++t) EXPECT_EQ(values[size_t(70 * b + t)], 1000 * b + t);
}

template <class T>
__global__ void warp_sum_kernel(const T* in, T* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  T sum = in[i];
  for (int distance = 16; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  out[i] = sum;
}

template <class T>
std::vector<T> counting(size_t count) {
  std::vector<T> values(count);
  std::iota(values.begin(), values.end(), T(1));
  return values;
}

TEST_F(FakeCuda, ShufflesOfEveryTypeCrossOneWarpOnly) {
  const auto check_type = [&]<class T>(T) {
    T* const in = device_array(counting<T>(128));
    T* const out = device_array(std::vector<T>(128));
    launch(warp_sum_kernel<T>, shape(2, 64), in, out);
    const std::vector<T> sums = host_array(out, 128);
    for (size_t i = 0; i < 128; ++i) EXPECT_EQ(sums[i], T(32 * (i / 32) * 32 + 32 * 33 / 2)) << i;
  };
  check_type(float{});
  check_type(double{});
  check_type(int{});
  check_type(unsigned{});
  check_type(int64_t{});
}

__global__ void exited_lane_kernel(int* out) {
  if (threadIdx.x == 5) return;
  out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, int(threadIdx.x), 1);
}

TEST_F(FakeCuda, ReportsAShuffleWithALaneThatHasEnded) {
  int* const out = device_array(std::vector<int>(32));
  EXPECT_ERROR(launch(exited_lane_kernel, shape(1, 32), out), "kernel launch",
               "cudaErrorLaunchFailure", "thread (5,0,0) of block (0,0,0)", "ended");
}

__global__ void reverse_kernel(int* data) {
  int* const block = dynamic_shared<int>();
  block[threadIdx.x] = data[threadIdx.x];
  __syncthreads();
  data[threadIdx.x] = block[blockDim.x - 1 - threadIdx.x];
}

TEST_F(FakeCuda, BlocksShareMemoryAndWaitForOneAnother) {
  for (const Order order : {Order::kForward, Order::kBackward}) {
    fake_cuda::set_order(order);
    std::vector<int> values = counting<int>(1000);
    int* const data = device_array(values);
    launch(reverse_kernel, shape(1, 1000, 4000), data);
    std::reverse(values.begin(), values.end());
    EXPECT_EQ(host_array(data, 1000), values);
  }
}

__global__ void unsynchronised_kernel(int* data) {
  int* const block = dynamic_shared<int>();
  block[threadIdx.x] = 7;
  data[threadIdx.x] = block[blockDim.x - 1 - threadIdx.x];
}

// A missing barrier shows: shared memory holds garbage at first, and threads may run in either
// order.
TEST_F(FakeCuda, AMissingBarrierShows) {
  fake_cuda::set_races(fake_cuda::Races::kIgnored);  // fake_races_test.cpp
  int* const data = device_array(std::vector<int>(64));
  launch(unsynchronised_kernel, shape(1, 64, 256), data);
  EXPECT_NE(host_array(data, 64), std::vector<int>(64, 7));
}

__global__ void votes_kernel(unsigned* out) {
  const unsigned odd = __ballot_sync(0xffffffffu, int(threadIdx.x % 2));
  const int up = __shfl_up_sync(0xffffffffu, int(threadIdx.x), 1, 8);
  const int down = __shfl_down_sync(0xffffffffu, int(threadIdx.x), 1, 8);
  const int first = __shfl_sync(0xffffffffu, int(threadIdx.x), 2, 16);
  const unsigned most = __reduce_max_sync(0xffffffffu, 100u - threadIdx.x);
  const int count = __syncthreads_count(threadIdx.x < 5 ? 1 : 0);
  unsigned* const mine = out + 6 * threadIdx.x;
  mine[0] = odd, mine[1] = unsigned(up), mine[2] = unsigned(down), mine[3] = unsigned(first),
  mine[4] = most;
  mine[5] = unsigned(count);
}

TEST_F(FakeCuda, VotesShufflesWithinWidthsAndReductions) {
  unsigned* const out = device_array(std::vector<unsigned>(6 * 64));
  launch(votes_kernel, shape(1, 64), out);
  const std::vector<unsigned> values = host_array(out, 6 * 64);
  for (unsigned t = 0; t < 64; ++t) {
    const unsigned* const mine = values.data() + size_t(6 * t);
    EXPECT_EQ(mine[0], 0xAAAAAAAAu);
    EXPECT_EQ(mine[1], t % 8 == 0 ? t : t - 1);
    EXPECT_EQ(mine[2], t % 8 == 7 ? t : t + 1);
    EXPECT_EQ(mine[3], t / 16 * 16 + 2);
    EXPECT_EQ(mine[4], 100 - t / 32 * 32);
    EXPECT_EQ(mine[5], 5u);
  }
}

__global__ void split_kernel(int* out) {
  if (threadIdx.x < 16)
    __syncthreads();
  else
    __syncwarp();
  out[threadIdx.x] = 1;
}
__global__ void left_barrier_kernel(int* out) {
  if (threadIdx.x >= 40) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}
__global__ void half_warp_kernel(int* out) {
  out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1, 1);
}
__global__ void outsider_kernel(int* out) { out[threadIdx.x] = __shfl_sync(0xffffu, 1, 0); }
__global__ void beyond_mask_kernel(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffu, 1, 20);
}
__global__ void trap_kernel(int* out) {
  if (out[0] == 0) __trap();
}

TEST_F(FakeCuda, ReportsThreadsThatWaitInVain) {
  int* const out = device_array(std::vector<int>(64));
  const auto expect_fault = [&](void (*kernel)(int*), int threads, const char* what) {
    EXPECT_ERROR(launch(kernel, shape(1, threads), out), "cudaErrorLaunchFailure", what);
    EXPECT_EQ(cudaStreamSynchronize(gpu_.stream()), cudaErrorLaunchFailure)
        << "the fault does not go away";
    fake_cuda::recover();
  };
  expect_fault(split_kernel, 32, "thread (0,0,0) of block (0,0,0) waits in __syncthreads");
  expect_fault(left_barrier_kernel, 64, "__syncthreads");
  expect_fault(half_warp_kernel, 48, "has only 16 threads");
  expect_fault(outsider_kernel, 32, "in which it is not");
  expect_fault(beyond_mask_kernel, 32, "lane 20");
  expect_fault(trap_kernel, 32, "__trap()");
  launch(index_kernel, shape(1, 64), out);  // works again
  EXPECT_EQ(host_array(out, 64)[63], 63);
}

// --- limits and memory ---------------------------------------------------------------------------
TEST_F(FakeCuda, RefusesShapesThatNoGpuTakes) {
  int* const out = device_array(std::vector<int>(1));
  EXPECT_ERROR(launch(index_kernel, shape(1, 1025), out), "cudaErrorInvalidConfiguration");
  EXPECT_ERROR(launch(index_kernel, shape(1, 0), out), "cudaErrorInvalidConfiguration");
  EXPECT_ERROR(launch(index_kernel, shape(1, 32, (48 << 10) + 1), out), "cudaErrorInvalidValue",
               "49152");
  // Above 32 bits, and one more than the limit of a grid.
  for (const int64_t blocks : {(int64_t{1} << 32) + 1, int64_t{1} << 31})
    EXPECT_ERROR(launch(index_kernel, shape(blocks, 1), out), fmt::format("{} blocks", blocks),
                 "a grid takes at most 2147483647");
  EXPECT_ERROR(allow_shared(index_kernel, int64_t{1} << 32), "4294967296 bytes");
  allow_shared(index_kernel, 100 << 10);
  launch(index_kernel, shape(1, 1, 100 << 10), out);
  EXPECT_ERROR(allow_shared(index_kernel, (227 << 10) + 1), "232448");
}

__global__ void shared_overrun_kernel(int* out) {
  dynamic_shared<int>()[threadIdx.x] = 1;
  if (threadIdx.x == 0) out[0] = 1;
}
__global__ void write_at_kernel(char* out, int64_t at) { out[at] = 1; }

TEST_F(FakeCuda, ReportsWritesOutsideOfMemory) {
  int* const out = device_array(std::vector<int>(1));
  EXPECT_ERROR(launch(shared_overrun_kernel, shape(1, 32, 64), out),
               "outside its 64 bytes of dynamic shared");
  fake_cuda::recover();
  for (const int64_t at : {int64_t{-1}, int64_t{100}}) {
    char* data = nullptr;
    check_cuda(cudaMalloc(&data, 100), "cudaMalloc");
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 256, 0u);
    launch(write_at_kernel, shape(1, 1), data, at);
    EXPECT_ERROR(gpu_.synchronize(), "cudaErrorIllegalAddress", "allocation of 100 bytes");
    fake_cuda::recover();
    static_cast<void>(cudaFree(data));
    fake_cuda::recover();
  }
}

TEST_F(FakeCuda, MemoryStartsAsGarbage) {
  float* data = nullptr;
  check_cuda(cudaMalloc(&data, sizeof(float)), "cudaMalloc");
  EXPECT_TRUE(std::isnan(host_array(data, 1)[0]));
  cudaFree(data);
}

TEST_F(FakeCuda, KernelsTakeNoHostMemoryAndHostsNoneOfTheGpu) {
  std::vector<int> host(128);
  // Not at a multiple of 256 bytes: such an address is taken for an enumerator followed by padding.
  int* const there = host.data() + (reinterpret_cast<uintptr_t>(host.data()) % 256 < 16 ? 4 : 0);
  EXPECT_ERROR(launch(index_kernel, shape(1, 32), there), "cudaErrorIllegalAddress", "argument 0");
  fake_cuda::recover();
  int* pinned = nullptr;
  check_cuda(cudaMallocHost(&pinned, 128), "cudaMallocHost");
  launch(index_kernel, shape(1, 32), pinned);
  EXPECT_EQ(pinned[31], 31);
  cudaFreeHost(pinned);
  volatile int* const device = device_array(host);
  EXPECT_DEATH(static_cast<void>(*device), "host code touched the GPU's memory");
  EXPECT_EQ(cudaMemcpy(host.data(), host.data(), 4, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
}

struct PaddedNumber {
  uint32_t number;
  int64_t behind_padding;
};
__global__ void padded_number_kernel(PaddedNumber in, uint32_t* out) { *out = in.number; }

// The contents of padding are arbitrary: half a host address after a number that happens to be the
// other half.
TEST_F(FakeCuda, TakesNoPaddingForHostMemory) {
  std::vector<int> host(32);
  auto* const data = host.data();
  PaddedNumber argument;
  memcpy(static_cast<void*>(&argument), &data, sizeof data);
  argument.behind_padding = 1;
  auto* const out = reinterpret_cast<uint32_t*>(device_array(std::vector<int>(1)));
  launch(padded_number_kernel, shape(1, 1), argument, out);
  EXPECT_EQ(host_array(out, 1)[0], argument.number);
}

TEST_F(FakeCuda, SaysWhenMemoryIsUsedUp) {
  fake_cuda::set_device_bytes(fake_cuda::counters().live_bytes + 1000);
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, 1001), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&data, 1000), cudaSuccess);
  cudaFree(data);
  fake_cuda::set_device_bytes(int64_t{4} << 30);
}

// --- streams and graphs --------------------------------------------------------------------------
__global__ void add_kernel(int* sum, const int* x, int factor) { *sum += factor * *x; }

// Pinned and device memory for a sum that a graph adds to.
struct Summing {
  explicit Summing(test::Gpu& gpu) : stream(gpu.stream()) {
    check_cuda(cudaMallocHost(&staged, sizeof(int)), "cudaMallocHost");
    auto* const both = reinterpret_cast<int*>(gpu.allocator().bytes({"data"}, 2 * sizeof(int)));
    x = both, sum = both + 1;
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  ~Summing() { cudaFreeHost(staged); }
  Summing(const Summing&) = delete;
  Summing& operator=(const Summing&) = delete;

  void add(int factor) const {
    check_cuda(cudaMemcpyAsync(x, staged, sizeof(int), cudaMemcpyHostToDevice, stream),
               "cudaMemcpyAsync");
    launch(add_kernel, {.blocks = 1, .threads = 1, .stream = stream}, sum, x, factor);
  }
  [[nodiscard]] int result() const {
    int value = 0;
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    check_cuda(cudaMemcpy(&value, sum, sizeof value, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return value;
  }

  cudaStream_t stream;
  int *staged = nullptr, *x = nullptr, *sum = nullptr;
};

TEST_F(FakeCuda, GraphsReadStagedMemoryAnewAndKeepArguments) {
  const Summing s(gpu_);
  *s.staged = 5;
  int factor = 10;
  check_cuda(cudaStreamBeginCapture(s.stream, cudaStreamCaptureModeGlobal),
             "cudaStreamBeginCapture");
  s.add(factor);
  factor = 1000;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check_cuda(cudaStreamEndCapture(s.stream, &graph), "cudaStreamEndCapture");
  check_cuda(cudaGraphInstantiate(&executable, graph), "cudaGraphInstantiate");
  check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
  EXPECT_EQ(s.result(), 0) << "work of a capture does not run";
  for (const int value : {1, 2}) {
    *s.staged = value;
    check_cuda(cudaGraphLaunch(executable, s.stream), "cudaGraphLaunch");
    gpu_.synchronize();
  }
  EXPECT_EQ(s.result(), 30);
  EXPECT_EQ(fake_cuda::counters().graph_launches, 2);
  EXPECT_EQ(fake_cuda::counters().launches, 2);
  cudaGraphExecDestroy(executable);
}

TEST_F(FakeCuda, NothingWaitsOrAllocatesWithinACapture) {
  const Summing s(gpu_);
  void* data = nullptr;
  int pageable = 0;
  const std::vector<std::function<cudaError_t()>> calls{
      [&] { return cudaStreamSynchronize(s.stream); },
      [&] { return cudaDeviceSynchronize(); },
      [&] { return cudaMalloc(&data, 4); },
      [&] { return cudaFree(s.x); },
      [&] { return cudaMemcpy(s.x, s.staged, 4, cudaMemcpyHostToDevice); },
      [&] { return cudaMemcpyAsync(s.x, &pageable, 4, cudaMemcpyHostToDevice, s.stream); },
      [&] { return cudaMemsetAsync(s.x, 0, 4, nullptr); }};
  for (size_t i = 0; i < calls.size(); ++i) {
    check_cuda(cudaStreamBeginCapture(s.stream, cudaStreamCaptureModeGlobal),
               "cudaStreamBeginCapture");
    EXPECT_NE(calls[i](), cudaSuccess) << "call " << i;
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(s.stream, &graph), cudaErrorStreamCaptureInvalidated)
        << "call " << i;
    fake_cuda::recover();
  }
}

// With late execution, staged memory that changes before it was read shows.
TEST_F(FakeCuda, LateExecutionReadsStagedMemoryAtTheWait) {
  const Summing s(gpu_);
  for (const Execution execution : {Execution::kAtOnce, Execution::kLate}) {
    fake_cuda::set_execution(execution);
    const int before = s.result();
    *s.staged = 1;
    s.add(1);
    *s.staged = 100;
    gpu_.synchronize();
    EXPECT_EQ(s.result() - before, execution == Execution::kLate ? 100 : 1);
  }
}

// Two streams that write the same word; the second one's write should remain.
class TwoStreams {
 public:
  explicit TwoStreams(test::Gpu& gpu) : first(gpu.stream()) {
    cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    word = reinterpret_cast<int*>(gpu.allocator().bytes({"data"}, sizeof(int)));
  }
  ~TwoStreams() { cudaEventDestroy(event), cudaStreamDestroy(second); }
  TwoStreams(const TwoStreams&) = delete;
  TwoStreams& operator=(const TwoStreams&) = delete;

  void write(cudaStream_t stream, int value) const {
    cudaMemsetAsync(word, value, sizeof(int), stream);
  }
  void put_after(cudaStream_t later, cudaStream_t earlier) const {
    check_cuda(cudaEventRecord(event, earlier), "cudaEventRecord");
    check_cuda(cudaStreamWaitEvent(later, event), "cudaStreamWaitEvent");
  }
  [[nodiscard]] int read() const {
    int value = 0;
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    check_cuda(cudaMemcpy(&value, word, sizeof value, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return value & 0xFF;
  }

  cudaStream_t first, second = nullptr;
  cudaEvent_t event = nullptr;
  int* word = nullptr;
};

TEST_F(FakeCuda, AMissingEventShowsWhereStreamsOvertake) {
  const TwoStreams s(gpu_);
  fake_cuda::set_execution(Execution::kOvertaking);
  s.write(s.first, 1), s.write(s.second, 2);
  EXPECT_EQ(s.read(), 1);
  s.write(s.first, 3);
  s.put_after(s.second, s.first);
  s.write(s.second, 4);
  EXPECT_EQ(s.read(), 4);
}

TEST_F(FakeCuda, AGraphKeepsWhatEventsSay) {
  const TwoStreams s(gpu_);
  for (const bool joined : {true, false}) {
    fake_cuda::set_execution(Execution::kOvertaking);
    check_cuda(cudaStreamBeginCapture(s.first, cudaStreamCaptureModeGlobal),
               "cudaStreamBeginCapture");
    s.write(s.first, 5);
    s.put_after(s.second, s.first);
    s.write(s.second, 6);
    if (joined) s.put_after(s.first, s.second);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(s.first, &graph),
              joined ? cudaSuccess : cudaErrorStreamCaptureUnjoined);
    if (!joined) continue;
    cudaGraphExec_t executable = nullptr;
    cudaGraphInstantiate(&executable, graph);
    for (int run = 0; run < 2; ++run) {
      check_cuda(cudaGraphLaunch(executable, s.first), "cudaGraphLaunch");
      EXPECT_EQ(s.read(), 6);
    }
    cudaGraphExecDestroy(executable), cudaGraphDestroy(graph);
    EXPECT_EQ(cudaStreamWaitEvent(s.first, s.event), cudaErrorCapturedEvent);
  }
}

TEST_F(FakeCuda, EventsTellTheTimeBetweenThem) {
  cudaEvent_t start = nullptr, end = nullptr;
  cudaEventCreate(&start), cudaEventCreate(&end);
  float milliseconds = -1;
  EXPECT_NE(cudaEventElapsedTime(&milliseconds, start, end), cudaSuccess) << "never recorded";
  fake_cuda::set_execution(Execution::kLate);
  cudaEventRecord(start, gpu_.stream()), cudaEventRecord(end, gpu_.stream());
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaErrorNotReady);
  check_cuda(cudaEventSynchronize(end), "cudaEventSynchronize");
  check_cuda(cudaEventElapsedTime(&milliseconds, start, end), "cudaEventElapsedTime");
  EXPECT_GE(milliseconds, 0);
  cudaEventDestroy(start), cudaEventDestroy(end);
}

}  // namespace
}  // namespace mpt
