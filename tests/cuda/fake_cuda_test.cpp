// The fake GPU itself: it must run what a GPU runs, and report what a GPU would hang on or suffer silently.
#include <numeric>
#include <vector>

#include "cuda/gpu.h"
#include "device/cuda/launch.cuh"
#include "support/expect_error.h"

namespace mpt {
namespace {

using fake_cuda::Execution;
using fake_cuda::HostPointers;
using fake_cuda::Order;

class FakeCuda : public test::GpuTest {
 protected:
  template <class T>
  T* device_array(const std::vector<T>& values) {
    auto* const data =
        reinterpret_cast<T*>(gpu_.allocator().bytes(Purpose::kData, int64_t(values.size() * sizeof(T))));
    cudaMemcpy(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice);
    return data;
  }
  template <class T>
  std::vector<T> host_array(const T* data, size_t count) {
    std::vector<T> values(count);
    check_cuda(cudaMemcpy(values.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return values;
  }
  LaunchShape shape(int64_t blocks, int threads, int64_t shared_bytes = 0) {
    return {.blocks = blocks, .threads = threads, .stream = gpu_.stream(), .shared_bytes = shared_bytes};
  }

  test::Gpu gpu_;
};

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
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
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
  EXPECT_ERROR(launch(exited_lane_kernel, shape(1, 32), out), "kernel launch", "cudaErrorLaunchFailure",
               "thread (5,0,0) of block (0,0,0)", "ended");
}

}  // namespace
}  // namespace mpt
