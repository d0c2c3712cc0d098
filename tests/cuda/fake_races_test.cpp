// The fake GPU reports accesses of two threads with no barrier between them, and nothing else.
#include "cuda/fake_cuda_fixture.h"
#include "support/expect_error.h"

namespace mpt {
namespace {

using fake_cuda::Order;

class FakeRaces : public test::FakeCudaTest {
 protected:
  void expect_race(void (*kernel)(int*), const LaunchShape& launched, const char* says,
                   const char* also = "with no barrier between them") {
    int* const data = device_array(std::vector<int>(256));
    for (const Order order : {Order::kForward, Order::kBackward}) {
      fake_cuda::set_order(order);
      EXPECT_ERROR(launch(kernel, launched, data), "cudaErrorLaunchFailure", says, also);
      fake_cuda::recover();
    }
  }
  void expect_none(void (*kernel)(int*), const LaunchShape& launched) {
    int* const data = device_array(std::vector<int>(256));
    for (const Order order : {Order::kForward, Order::kBackward}) {
      fake_cuda::set_order(order);
      EXPECT_NO_THROW(launch(kernel, launched, data));
    }
  }
};

constexpr unsigned kAll = 0xffffffffu;

// --- within a warp -------------------------------------------------------------------------------

// Like an attention that keeps scores in memory: lane 0 writes, all read.
__global__ void one_writes_kernel(int* data) {
  if (threadIdx.x == 0) data[100] = 7;
  data[threadIdx.x] = data[100];
}
__global__ void one_writes_then_waits_kernel(int* data) {
  if (threadIdx.x == 0) data[100] = 7;
  __syncwarp();
  data[threadIdx.x] = data[100];
}
// Lanes meet in a shuffle, which does not order memory.
__global__ void one_writes_then_shuffles_kernel(int* data) {
  const int sum = __shfl_xor_sync(kAll, int(threadIdx.x), 1);
  if (threadIdx.x == 0) data[100] = 7;
  data[threadIdx.x] = __shfl_xor_sync(kAll, sum, 2) + data[100];
}
__global__ void votes_are_no_barriers_kernel(int* data) {
  if (threadIdx.x == 3) data[100] = 7;
  if (__any_sync(kAll, 1) != 0) data[threadIdx.x] = data[100];
}

TEST_F(FakeRaces, AMissingSyncwarpIsReported) {
  for (const auto kernel : {one_writes_kernel, one_writes_then_shuffles_kernel})
    expect_race(kernel, shape(1, 32), "thread (0,0,0) of block (0,0,0)",
                "byte 400 of an allocation of 1024 bytes");
  expect_race(votes_are_no_barriers_kernel, shape(1, 32), "thread (3,0,0) of block (0,0,0)");
  expect_none(one_writes_then_waits_kernel, shape(1, 32));
}

// The last half waits for a mask other than that of the writer.
__global__ void other_half_waits_kernel(int* data) {
  if (threadIdx.x == 0) data[100] = 7;
  __syncwarp(threadIdx.x < 16 ? 0xffffu : 0xffff0000u);
  data[threadIdx.x] = data[100];
}
// Lane 0 signals lane 1, and that lane 2: order is transitive.
__global__ void handed_on_kernel(int* data) {
  if (threadIdx.x == 0) data[100] = 7;
  if (threadIdx.x < 2) __syncwarp(0x3u);
  if (threadIdx.x == 1 || threadIdx.x == 2) __syncwarp(0x6u);
  if (threadIdx.x == 2) data[0] = data[100];
}

TEST_F(FakeRaces, ABarrierOrdersTheLanesOfItsMask) {
  expect_race(other_half_waits_kernel, shape(1, 32), "thread (0,0,0) of block (0,0,0)");
  expect_none(handed_on_kernel, shape(1, 32));
}

__global__ void read_then_written_kernel(int* data) {
  if (threadIdx.x == 0) data[0] = data[100];
  if (threadIdx.x == 1) data[100] = 7;
}
__global__ void written_twice_kernel(int* data) { data[threadIdx.x / 2] = int(threadIdx.x); }

TEST_F(FakeRaces, WritesAfterReadsAndAfterWritesAreReported) {
  int* const data = device_array(std::vector<int>(256));
  EXPECT_ERROR(
      launch(read_then_written_kernel, shape(1, 32), data),
      "thread (1,0,0) of block (0,0,0) writes byte 400 of an allocation of 1024 bytes, which "
      "thread (0,0,0) of block (0,0,0) read with no barrier between them");
  fake_cuda::recover();
  expect_race(written_twice_kernel, shape(1, 32), "writes byte", "wrote with no barrier");
}

// All decode with a scale, and one replaces it after the maximum of the decoded values.
__global__ void replaced_kernel(int* data) {
  const int largest = int(__reduce_max_sync(kAll, unsigned(data[100])));
  if (threadIdx.x == 0) data[100] = largest + 1;
}
__global__ void replaced_at_once_kernel(int* data) {
  const int mine = data[100];
  if (threadIdx.x == 31) data[100] = mine + 1;
  data[threadIdx.x] = __shfl_xor_sync(kAll, mine, 1);
}

TEST_F(FakeRaces, AnExchangeOrdersReadsBeforeLaterWrites) {
  expect_none(replaced_kernel, shape(1, 32));
  expect_race(replaced_at_once_kernel, shape(1, 32), "thread (31,0,0) of block (0,0,0)");
}

// Neighboring bytes are not the same memory.
__global__ void bytes_kernel(int* data) {
  auto* const bytes = reinterpret_cast<char*>(data);
  bytes[threadIdx.x] = char(threadIdx.x);
  bytes[100 + threadIdx.x] = bytes[threadIdx.x];
}
struct alignas(16) Sixteen {
  int at[4];
};
__global__ void wide_kernel(int* data) {
  reinterpret_cast<Sixteen*>(data)[threadIdx.x] = {};
  if (threadIdx.x == 5) data[4 * 5 - 1] = 1;  // the last word of thread 4
}

TEST_F(FakeRaces, EveryByteCounts) {
  expect_none(bytes_kernel, shape(1, 32));
  expect_race(wide_kernel, shape(1, 32), "thread (4,0,0)", "byte 76 of an allocation");
}

// --- within a block, and beyond ------------------------------------------------------------------

template <bool kWaits>
__global__ void reverse_kernel(int* data) {
  int* const block = dynamic_shared<int>();
  block[threadIdx.x] = data[threadIdx.x];
  if constexpr (kWaits) __syncthreads();
  data[threadIdx.x] = block[blockDim.x - 1 - threadIdx.x];
}
template <bool kWaits>
__global__ void reverse_in_static_kernel(int* data) {
  __shared__ int block[64];
  block[threadIdx.x] = data[threadIdx.x];
  if constexpr (kWaits) __syncthreads();
  data[threadIdx.x] = block[blockDim.x - 1 - threadIdx.x];
}
// __syncwarp() orders nothing between warps.
__global__ void reverse_by_warps_kernel(int* data) {
  int* const block = dynamic_shared<int>();
  block[threadIdx.x] = data[threadIdx.x];
  __syncwarp();
  data[threadIdx.x] = block[blockDim.x - 1 - threadIdx.x];
}
// The second round overwrites data that others may still read.
__global__ void two_rounds_kernel(int* data) {
  int* const block = dynamic_shared<int>();
  for (int round = 0; round < 2; ++round) {
    block[threadIdx.x] = data[threadIdx.x];
    __syncthreads();
    data[threadIdx.x] = block[blockDim.x - 1 - threadIdx.x];
  }
}

TEST_F(FakeRaces, AMissingSyncthreadsIsReported) {
  expect_race(reverse_kernel<false>, shape(1, 64, 256), "of dynamic shared memory");
  expect_race(reverse_in_static_kernel<false>, shape(1, 64), "static shared memory");
  expect_race(reverse_by_warps_kernel, shape(1, 64, 256), "of dynamic shared memory");
  expect_race(two_rounds_kernel, shape(1, 64, 256), "of dynamic shared memory");
  expect_none(reverse_kernel<true>, shape(1, 64, 256));
  expect_none(reverse_in_static_kernel<true>, shape(1, 64));
}

// Shared memory is each block's own; other memory is not.
__global__ void share_nothing_kernel(int* data) {
  __shared__ int block[32];
  block[threadIdx.x] = int(threadIdx.x);
  data[32 * blockIdx.x + threadIdx.x] = block[threadIdx.x];
}
__global__ void blocks_meet_kernel(int* data) { data[threadIdx.x] = int(blockIdx.x); }
__global__ void blocks_add_kernel(int* data) { atomicAdd(data + threadIdx.x, 1); }

TEST_F(FakeRaces, BlocksAreOrderedByNothing) {
  expect_none(share_nothing_kernel, shape(3, 32));
  expect_race(blocks_meet_kernel, shape(3, 32), "of block (1,0,0)");
  expect_none(blocks_add_kernel, shape(3, 32));
}

// Remains of a fault disappear with the launch, and one launch may read what another wrote.
TEST_F(FakeRaces, LaunchesAreNoRace) {
  int* const data = device_array(std::vector<int>(256));
  for (int i = 0; i < 3; ++i) EXPECT_NO_THROW(launch(blocks_meet_kernel, shape(1, 32), data));
  fake_cuda::set_races(fake_cuda::Races::kIgnored);
  EXPECT_NO_THROW(launch(blocks_meet_kernel, shape(3, 32), data));
}

}  // namespace
}  // namespace mpt
