// Unordered copies on the fake GPU: work on the legacy default stream and copies from pageable
// memory may happen later than they seem to.
#include <functional>

#include "cuda/fake_cuda_fixture.h"

namespace mpt {
namespace {

using fake_cuda::Execution;

__global__ void take_kernel(const int* word, int* out) { *out = *word; }

class FakeStreams : public test::FakeCudaTest {
 protected:
  FakeStreams() {
    cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking);
    cudaStreamCreate(&blocking_);
    cudaEventCreateWithFlags(&event_, cudaEventDisableTiming);
    check_cuda(cudaMallocHost(&pinned_, sizeof(int)), "cudaMallocHost");
  }
  ~FakeStreams() override {
    cudaDeviceSynchronize();
    cudaFreeHost(pinned_), cudaEventDestroy(event_);
    cudaStreamDestroy(other_), cudaStreamDestroy(blocking_);
  }
  void SetUp() override {
    test::FakeCudaTest::SetUp();
    word_ = device_array(std::vector<int>{0}), out_ = device_array(std::vector<int>{-1});
  }

  // Returns the value that a kernel reads from a word that was 0, on a stream after `enqueue` has
  // enqueued a change of it.
  int found_on(cudaStream_t stream, const std::function<void()>& enqueue) {
    const int zero = 0;
    gpu_.write(word_, &zero, sizeof zero);
    enqueue();
    launch(take_kernel, {.blocks = 1, .threads = 1, .stream = stream}, word_, out_);
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return host_array(out_, 1)[0];
  }
  void copy() { check_cuda(cudaMemcpy(word_, &seven_, 4, cudaMemcpyHostToDevice), "cudaMemcpy"); }
  void copy_on(cudaStream_t stream) {
    check_cuda(cudaMemcpyAsync(word_, &seven_, 4, cudaMemcpyHostToDevice, stream),
               "cudaMemcpyAsync");
  }
  void put_after(cudaStream_t later, cudaStream_t earlier) {
    check_cuda(cudaEventRecord(event_, earlier), "cudaEventRecord");
    check_cuda(cudaStreamWaitEvent(later, event_), "cudaStreamWaitEvent");
  }

  cudaStream_t other_ = nullptr, blocking_ = nullptr;
  cudaEvent_t event_ = nullptr;
  int seven_ = 7;
  int *pinned_ = nullptr, *word_ = nullptr, *out_ = nullptr;
};

TEST_F(FakeStreams, NonBlockingStreamsDoNotWaitForTheLegacyStream) {
  for (const Execution execution : {Execution::kAtOnce, Execution::kOvertaking}) {
    fake_cuda::set_execution(execution);
    const cudaStream_t stream = gpu_.stream();
    EXPECT_EQ(found_on(stream, [&] { copy(); }), 0);
    EXPECT_EQ(found_on(stream, [&] { copy_on(nullptr); }), 0);
    EXPECT_EQ(found_on(stream, [&] { cudaMemset(word_, 7, 4); }), 0);
    // Not even if the host waits, but for the wrong stream.
    EXPECT_EQ(found_on(stream, [&] { copy(), cudaStreamSynchronize(stream); }), 0);
  }
}

TEST_F(FakeStreams, WaitingForItOrdersTheLegacyStream) {
  const cudaStream_t stream = gpu_.stream();
  EXPECT_EQ(found_on(stream, [&] { copy(), cudaStreamSynchronize(nullptr); }), 7);
  EXPECT_EQ(found_on(stream, [&] { copy(), cudaDeviceSynchronize(); }), 7);
  EXPECT_EQ(found_on(stream, [&] { copy(), put_after(stream, nullptr); }), 7);
  EXPECT_EQ(
      found_on(stream, [&] { copy(), cudaEventRecord(event_), cudaEventSynchronize(event_); }), 7);
  EXPECT_EQ(found_on(nullptr, [&] { copy(); }), 7);
  EXPECT_EQ(found_on(blocking_, [&] { copy(); }), 7);
  EXPECT_EQ(found_on(nullptr, [&] { copy_on(blocking_); }), 7);
}

// A copy from pinned memory is complete when the call returns.
TEST_F(FakeStreams, APlainCopyOfPinnedMemoryIsDone) {
  *pinned_ = 7;
  const auto copy_pinned = [&] { cudaMemcpy(word_, pinned_, 4, cudaMemcpyHostToDevice); };
  EXPECT_EQ(found_on(gpu_.stream(), copy_pinned), 7);
}

TEST_F(FakeStreams, WhatIsLeftOfAPageableCopyIsItsStreams) {
  const cudaStream_t stream = gpu_.stream();
  EXPECT_EQ(found_on(stream, [&] { copy_on(stream); }), 7);
  EXPECT_EQ(found_on(stream, [&] { copy_on(other_); }), 0);
  EXPECT_EQ(found_on(stream, [&] { copy_on(other_), put_after(stream, other_); }), 7);
  EXPECT_EQ(found_on(stream, [&] { copy_on(other_), cudaStreamSynchronize(other_); }), 7);
  EXPECT_EQ(found_on(stream, [&] { copy_on(other_), cudaStreamSynchronize(stream); }), 0);
}

// The driver has read the host's memory when the call returns.
TEST_F(FakeStreams, PageableMemoryIsReadAtTheCall) {
  const cudaStream_t stream = gpu_.stream();
  EXPECT_EQ(found_on(stream, [&] { copy_on(stream), seven_ = 8; }), 7);
}

TEST_F(FakeStreams, WhatComesToTheHostIsThereAndWaitsForNoOtherStream) {
  fake_cuda::set_execution(Execution::kLate);
  int value = -1;
  launch(take_kernel, {.blocks = 1, .threads = 1, .stream = gpu_.stream()}, word_, out_);
  check_cuda(cudaMemcpy(&value, out_, 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
  EXPECT_EQ(value, -1) << "the kernel's stream does not block";
  check_cuda(cudaMemcpyAsync(&value, out_, 4, cudaMemcpyDeviceToHost, gpu_.stream()),
             "cudaMemcpyAsync");
  EXPECT_EQ(value, 0) << "the kernel's own stream";
}

TEST_F(FakeStreams, PitchesEndWhereTheGpusDo) {
  fake_cuda::set_most_pitch(1000);
  char* data = nullptr;
  check_cuda(cudaMalloc(&data, 4000), "cudaMalloc");
  std::vector<char> host(4000);
  const auto copy = [&](size_t pitch) {
    return cudaMemcpy2DAsync(data, pitch, host.data(), 10, 10, 2, cudaMemcpyHostToDevice,
                             gpu_.stream());
  };
  EXPECT_EQ(copy(1000), cudaSuccess);
  EXPECT_EQ(copy(1001), cudaErrorInvalidPitchValue);
  cudaFree(data);
}

}  // namespace
}  // namespace mpt
