// Graph capture on a GPU: run, record, replay, and refusals of a capture.
#include <array>

#include "cuda/device_fixture.h"
#include "device/cuda/cuda_streams.h"
#include "support/expect_error.h"

namespace mpt {
namespace {

class CudaGraph : public test::CudaDeviceTest {
 protected:
  void SetUp() override {
    CudaDeviceTest::SetUp();
    if (!IsSkipped()) make_tensors();
  }
  void make_tensors() {
    in_ = allocator_->pinned({"data"}, DType::kF32, 4, 4);
    weight_ = allocator_->pinned({"data"}, DType::kF32, 4, 4);
    out_ = allocator_->pinned({"data"}, DType::kF32, 4, 4);
    device_->gemm().reserve(*allocator_, std::array{product()});
    for (int i = 0; i < 4; ++i) weight_.image<float>()[5 * i] = 2;  // twice the unit matrix
    device_->send(weight_);
    device_->synchronize();
  }
  [[nodiscard]] GemmCall product() const {
    return {.a = in_.tensor, .b = weight_.tensor, .d = out_.tensor};
  }
  // out = 2 in
  void doubled() {
    ++calls_;
    device_->send(in_);
    device_->gemm().run(product());
    device_->receive(out_);
  }
  void expect_doubled(GraphCapture& work, float value) {
    std::fill_n(in_.image<float>(), 16, value);
    work.run([&] { doubled(); });
    device_->synchronize();
    for (int i = 0; i < 16; ++i) ASSERT_EQ(out_.image<float>()[i], 2 * value);
  }
  [[nodiscard]] bool capturing() const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check_cuda(cudaStreamIsCapturing(stream_of(device_->stream()), &status),
               "cudaStreamIsCapturing");
    return status != cudaStreamCaptureStatusNone;
  }

  PinnedBuffer in_, weight_, out_;
  int calls_ = 0;
};

TEST_F(CudaGraph, RunsOnceRecordsOnceAndReplaysWithNewImages) {
  const auto work = device_->make_graph_capture();
  const std::array<int, 5> calls{1, 2, 2, 2, 2};
  for (size_t i = 0; i < calls.size(); ++i) {
    expect_doubled(*work, float(i + 1));
    EXPECT_EQ(calls_, calls[i]);
    EXPECT_EQ(work->replayed(), i >= 2);
  }
}

TEST_F(CudaGraph, OffItIsRunEveryTime) {
  use({.graphs = CudaGraphs::kOff, .tuning = GemmTuning::kOff});
  make_tensors();
  const auto work = device_->make_graph_capture();
  for (int i = 1; i <= 4; ++i) {
    expect_doubled(*work, float(i));
    EXPECT_EQ(calls_, i);
    EXPECT_FALSE(work->replayed());
  }
}

TEST_F(CudaGraph, SeveralAreApart) {
  const auto one = device_->make_graph_capture(), other = device_->make_graph_capture();
  for (int i = 1; i <= 3; ++i) {
    expect_doubled(*one, float(i));
    expect_doubled(*other, float(-i));
  }
  EXPECT_EQ(calls_, 4);
}

TEST_F(CudaGraph, WithinAnotherItIsAPartOfThat) {
  const auto outer = device_->make_graph_capture(), inner = device_->make_graph_capture();
  for (int i = 1; i <= 4; ++i) {
    std::fill_n(in_.image<float>(), 16, float(i));
    outer->run([&] { inner->run([&] { doubled(); }); });
    device_->synchronize();
    for (int j = 0; j < 16; ++j) ASSERT_EQ(out_.image<float>()[j], float(2 * i));
  }
  EXPECT_EQ(calls_, 2);
}

TEST_F(CudaGraph, AProductMetFirstWhileRecordingIsRecorded) {
  const auto work = device_->make_graph_capture();
  const GemmCall added{
      .a = in_.tensor, .b = weight_.tensor, .d = out_.tensor, .accumulate = Accumulate::kYes};
  int run = 0;
  const auto grown = [&] {
    device_->send(in_);
    device_->gemm().run(product());
    if (run > 0) device_->gemm().run(added);  // not seen in the plain run
    device_->receive(out_);
  };
  for (; run < 4; ++run) {
    std::fill_n(in_.image<float>(), 16, float(run + 1));
    work->run(grown);
    device_->synchronize();
    for (int j = 0; j < 16; ++j)
      ASSERT_EQ(out_.image<float>()[j], float((run > 0 ? 4 : 2) * (run + 1)));
  }
}

TEST_F(CudaGraph, AnErrorEndsTheRecording) {
  const auto work = device_->make_graph_capture();
  const auto failing = [&] {
    doubled();
    throw error("this went wrong");
  };
  EXPECT_ERROR(work->run(failing), "this went wrong");  // plain
  expect_doubled(*work, 1);
  EXPECT_ERROR(work->run(failing), "this went wrong");  // while recording
  EXPECT_FALSE(capturing());
  for (int i = 2; i <= 4; ++i) expect_doubled(*work, float(i));
  EXPECT_EQ(calls_, 4);  // two that failed, the plain run and the recording
}

TEST_F(CudaGraph, WhatCudaCannotRecordEndsTheRecordingToo) {
  const auto work = device_->make_graph_capture();
  const auto waiting = [&] {
    doubled();
    check_cuda(cudaStreamSynchronize(stream_of(device_->stream())), "cudaStreamSynchronize");
  };
  EXPECT_NO_THROW(work->run(waiting));
  EXPECT_ERROR(work->run(waiting), "cudaStreamSynchronize");
  EXPECT_FALSE(capturing());
  for (int i = 1; i <= 3; ++i) expect_doubled(*work, float(i));
}

// Even in the plain run, and if nothing is recorded: whether work waits must not depend on an
// option.
TEST_F(CudaGraph, WaitingWithinIsALogicError) {
  for (const CudaGraphs graphs : {CudaGraphs::kOn, CudaGraphs::kOff}) {
    use({.graphs = graphs, .tuning = GemmTuning::kOff});
    make_tensors();
    const auto work = device_->make_graph_capture();
    std::array<float, 16> host{};
    auto* const bytes = reinterpret_cast<std::byte*>(host.data());
    EXPECT_THROW(work->run([&] { device_->synchronize(); }), LogicError);
    EXPECT_THROW(work->run([&] { device_->upload(bytes, in_.tensor); }), LogicError);
    EXPECT_THROW(work->run([&] { device_->download(out_.tensor, bytes); }), LogicError);
    for (int i = 1; i <= 3; ++i) expect_doubled(*work, float(i));
  }
}

TEST_F(CudaGraph, MayGoWhileItRuns) {
  auto work = device_->make_graph_capture();
  for (int i = 1; i <= 3; ++i) expect_doubled(*work, float(i));
  std::fill_n(in_.image<float>(), 16, 8.0f);
  work->run([&] { doubled(); });
  work.reset();
  device_->synchronize();
  EXPECT_EQ(out_.image<float>()[0], 16.0f);
}

#ifdef MPT_FAKE_CUDA
// No result exists before the host waits, and the host waits nowhere else.
TEST_F(CudaGraph, IsOnlyEnqueued) {
  fake_cuda::set_execution(fake_cuda::Execution::kLate);
  const auto work = device_->make_graph_capture();
  for (int i = 1; i <= 4; ++i) {
    std::fill_n(in_.image<float>(), 16, float(i));
    fake_cuda::reset_counters();
    work->run([&] { doubled(); });
    EXPECT_EQ(fake_cuda::counters().synchronisations, 0);
    EXPECT_EQ(fake_cuda::counters().allocations, 0);
    EXPECT_EQ(out_.image<float>()[0], float(2 * (i - 1)));
    device_->synchronize();
    EXPECT_EQ(out_.image<float>()[0], float(2 * i));
  }
}
#endif

}  // namespace
}  // namespace mpt
