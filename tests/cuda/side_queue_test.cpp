// Work beside a GPU's own: in the order that tickets say, recorded in graphs, and never waited for by the
// host.
#include <array>

#include "cuda/device_fixture.h"
#include "device/cuda/cuda_streams.h"
#include "support/expect_error.h"

namespace mpt {
namespace {

class CudaSideQueueTest : public test::CudaDeviceTest {
 protected:
  void SetUp() override {
    CudaDeviceTest::SetUp();
    if (IsSkipped()) return;
    in_ = allocator_->staged({"data"}, DType::kF32, 4, 4);
    between_ = allocator_->tensor({"data"}, DType::kF32, 4, 4);
    out_ = allocator_->staged({"data"}, DType::kF32, 4, 4);
    queue_ = device_->make_side_queue();
    device_->synchronize();
  }
  void TearDown() override { queue_.reset(); }

  void copy(const Tensor& from, const Tensor& to, cudaStream_t stream) const {
    check_cuda(cudaMemcpyAsync(to.data, from.data, size_t(from.bytes()), cudaMemcpyDeviceToDevice, stream),
               "cudaMemcpyAsync");
  }
  SideQueue::Ticket beside() {
    return queue_->run([this] { copy(in_.tensor, between_, stream_of(queue_->stream())); });
  }
  // in -> between beside the device's work, then between -> out in it.
  void pass_on() {
    device_->send(in_);
    queue_->wait(beside());
    copy(between_, out_.tensor, stream_of(device_->stream()));
    device_->receive(out_);
  }
  void set(float value) { std::fill_n(in_.image<float>(), 16, value); }
  void expect_out(float value) {
    device_->synchronize();
    for (int i = 0; i < 16; ++i) ASSERT_EQ(out_.image<float>()[i], value);
  }

  Staged in_, out_;
  Tensor between_;
  std::unique_ptr<SideQueue> queue_;
};

TEST_F(CudaSideQueueTest, HasAStreamOfItsOwn) {
  EXPECT_NE(stream_of(queue_->stream()), nullptr);
  EXPECT_NE(queue_->stream(), device_->stream());
}

TEST_F(CudaSideQueueTest, WorkComesAfterTheDevicesAndBeforeWhatWaits) {
  for (int i = 1; i <= 5; ++i) {
    set(float(i));
    pass_on();
    expect_out(float(i));
  }
}

TEST_F(CudaSideQueueTest, IsRecordedInAGraph) {
  const auto work = device_->make_repeated_work();
  for (int i = 1; i <= 5; ++i) {
    set(float(i));
    work->run([&] { pass_on(); });
    EXPECT_EQ(work->replayed(), i > 2);
    expect_out(float(i));
  }
}

TEST_F(CudaSideQueueTest, AGraphThatDoesNotWaitForItIsRefused) {
  const auto work = device_->make_repeated_work();
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

TEST_F(CudaSideQueueTest, AnyTicketCanBeWaitedForLater) {
  std::array<SideQueue::Ticket, 200> tickets{};
  for (size_t i = 0; i < tickets.size(); ++i) {
    tickets[i] = queue_->run([] {});
    EXPECT_EQ(tickets[i], SideQueue::Ticket(i + 1));
  }
  for (const SideQueue::Ticket ticket : {tickets[0], tickets[150], tickets[199], tickets[3]})
    EXPECT_NO_THROW(queue_->wait(ticket));
  EXPECT_THROW(queue_->wait(201), LogicError);
  EXPECT_THROW(queue_->wait(0), LogicError);
}

TEST_F(CudaSideQueueTest, WhatWorkThrewComesOutAtTheWait) {
  int calls = 0;
  const auto before = queue_->run([&] { ++calls; });
  const auto failed = queue_->run([&] { throw error("rank 3 is gone"); });
  const auto after = queue_->run([&] { ++calls; });
  for (const SideQueue::Ticket ticket : {failed, after, before})
    EXPECT_ERROR(queue_->wait(ticket), "rank 3 is gone");
  EXPECT_EQ(calls, 1);
}

#ifdef MPT_FAKE_CUDA
TEST_F(CudaSideQueueTest, HoldsWhereStreamsOvertakeEachOther) {
  fake_cuda::set_execution(fake_cuda::Execution::kOvertaking);
  const auto work = device_->make_repeated_work();
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

// Else the test above would show nothing.
TEST_F(CudaSideQueueTest, AForgottenWaitShows) {
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
