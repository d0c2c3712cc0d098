// The communication stream of a GPU: ordered by events, captured in graphs, and never waited for by
// the host.
#include <array>

#include "cuda/device_fixture.h"
#include "device/cuda/cuda_streams.h"
#include "support/expect_error.h"

namespace mpt {
namespace {

class CudaCommStreamTest : public test::CudaDeviceTest {
 protected:
  void SetUp() override {
    CudaDeviceTest::SetUp();
    if (IsSkipped()) return;
    in_ = allocator_->pinned({"data"}, DType::kF32, 4, 4);
    between_ = allocator_->tensor({"data"}, DType::kF32, 4, 4);
    out_ = allocator_->pinned({"data"}, DType::kF32, 4, 4);
    comm_stream_ = device_->make_comm_stream();
    device_->synchronize();
  }
  void TearDown() override { comm_stream_.reset(); }

  void copy(const Tensor& from, const Tensor& to, cudaStream_t stream) const {
    check_cuda(
        cudaMemcpyAsync(to.data, from.data, size_t(from.bytes()), cudaMemcpyDeviceToDevice, stream),
        "cudaMemcpyAsync");
  }
  CommStream::Event beside() {
    return comm_stream_->run(
        [this] { copy(in_.tensor, between_, stream_of(comm_stream_->stream())); });
  }
  // in -> between in parallel with the device's work, then between -> out as part of it.
  void pass_on() {
    device_->send(in_);
    comm_stream_->wait(beside());
    copy(between_, out_.tensor, stream_of(device_->stream()));
    device_->receive(out_);
  }
  void set(float value) { std::fill_n(in_.image<float>(), 16, value); }
  void expect_out(float value) {
    device_->synchronize();
    for (int i = 0; i < 16; ++i) ASSERT_EQ(out_.image<float>()[i], value);
  }

  PinnedBuffer in_, out_;
  Tensor between_;
  std::unique_ptr<CommStream> comm_stream_;
};

TEST_F(CudaCommStreamTest, HasAStreamOfItsOwn) {
  EXPECT_NE(stream_of(comm_stream_->stream()), nullptr);
  EXPECT_NE(comm_stream_->stream(), device_->stream());
}

TEST_F(CudaCommStreamTest, WorkComesAfterTheDevicesAndBeforeWhatWaits) {
  for (int i = 1; i <= 5; ++i) {
    set(float(i));
    pass_on();
    expect_out(float(i));
  }
}

TEST_F(CudaCommStreamTest, IsRecordedInAGraph) {
  const auto work = device_->make_graph_capture();
  for (int i = 1; i <= 5; ++i) {
    set(float(i));
    work->run([&] { pass_on(); });
    EXPECT_EQ(work->replayed(), i > 2);
    expect_out(float(i));
  }
}

TEST_F(CudaCommStreamTest, AGraphThatDoesNotWaitForItIsRefused) {
  const auto work = device_->make_graph_capture();
  const auto forgotten = [&] {
    device_->send(in_);
    beside();
  };
  EXPECT_NO_THROW(work->run(forgotten));
  EXPECT_ERROR(work->run(forgotten), "cudaStreamEndCapture", "Unjoined");
  set(7);
  pass_on();
  expect_out(7);
}

TEST_F(CudaCommStreamTest, AnyEventCanBeWaitedForLater) {
  std::array<CommStream::Event, 200> events{};
  for (size_t i = 0; i < events.size(); ++i) {
    events[i] = comm_stream_->run([] {});
    EXPECT_EQ(events[i], CommStream::Event(i + 1));
  }
  for (const CommStream::Event event : {events[0], events[150], events[199], events[3]})
    EXPECT_NO_THROW(comm_stream_->wait(event));
  EXPECT_THROW(comm_stream_->wait(201), LogicError);
  EXPECT_THROW(comm_stream_->wait(0), LogicError);
}

TEST_F(CudaCommStreamTest, WhatWorkThrewComesOutAtTheWait) {
  int calls = 0;
  const auto before = comm_stream_->run([&] { ++calls; });
  const auto failed = comm_stream_->run([&] { throw error("rank 3 is gone"); });
  const auto after = comm_stream_->run([&] { ++calls; });
  for (const CommStream::Event event : {failed, after, before})
    EXPECT_ERROR(comm_stream_->wait(event), "rank 3 is gone");
  EXPECT_EQ(calls, 1);
}

#ifdef MPT_FAKE_CUDA
TEST_F(CudaCommStreamTest, HoldsWhereStreamsOvertakeEachOther) {
  fake_cuda::set_execution(fake_cuda::Execution::kOvertaking);
  const auto work = device_->make_graph_capture();
  for (int i = 1; i <= 6; ++i) {
    set(float(i));
    fake_cuda::reset_counters();
    if (i % 2 == 0)
      pass_on();
    else
      work->run([&] { pass_on(); });
    EXPECT_EQ(fake_cuda::counters().synchronisations, 0);
    EXPECT_EQ(fake_cuda::counters().allocations, 0);
    expect_out(float(i));
  }
}

// Otherwise the test above would show nothing.
TEST_F(CudaCommStreamTest, AForgottenWaitShows) {
  set(1);
  pass_on();
  expect_out(1);
  fake_cuda::set_execution(fake_cuda::Execution::kOvertaking);
  set(2);
  device_->send(in_);
  beside();
  copy(between_, out_.tensor, stream_of(device_->stream()));
  device_->receive(out_);
  expect_out(1);
}
#endif

}  // namespace
}  // namespace mpt
