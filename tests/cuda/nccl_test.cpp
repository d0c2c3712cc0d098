// Ranks on GPUs: one on the existing GPU, several over the fake NCCL.
#if defined(MPT_FAKE_CUDA) || defined(MPT_WITH_NCCL)

#include <array>
#include <functional>
#include <thread>
#include <vector>

#include "core/bf16.h"
#include "cuda/device_fixture.h"
#include "ranks/cuda/nccl_transport.h"
#include "ranks/tcp_socket.h"
#include "support/expect_error.h"
#ifdef MPT_FAKE_CUDA
#include "support/fake_cuda/fake_nccl.h"
#endif

namespace mpt {
namespace {

using namespace std::chrono_literals;

class NcclAlone : public test::CudaDeviceTest {
 protected:
  void SetUp() override {
    CudaDeviceTest::SetUp();
    if (IsSkipped()) return;
    comm_stream_ = device_->make_comm_stream();
    ranks_ = make_nccl_transport({}, {.timeout = 20s, .stream = comm_stream_->stream()});
  }
  void TearDown() override {
    ranks_.reset();
    comm_stream_.reset();
  }
  Tensor on_gpu(const std::vector<float>& values, DType type = DType::kF32) {
    const auto n = int64_t(values.size());
    const Tensor tensor = allocator_->tensor({"data"}, type, 1, n);
    std::vector<bf16> halves;
    for (const float x : values) halves.push_back(bf16_nearest(x));
    device_->upload(reinterpret_cast<const std::byte*>(type == DType::kF32
                                                           ? static_cast<const void*>(values.data())
                                                           : halves.data()),
                    tensor);
    return tensor;
  }
  std::vector<float> fetched(const Tensor& tensor) {
    std::vector<float> values(size_t(tensor.elements()));
    device_->download(tensor, reinterpret_cast<std::byte*>(values.data()));
    return values;
  }

  std::unique_ptr<CommStream> comm_stream_;
  std::unique_ptr<Transport> ranks_;
};

TEST_F(NcclAlone, GivesBackWhatItHas) {
  EXPECT_NE(ranks_->name().find("NCCL 2."), std::string::npos);
  const std::vector<float> values{1, -2, 3.5f};
  const Tensor sum = on_gpu({0, 0, 0});
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const Tensor part = on_gpu(values, type);
    comm_stream_->wait(comm_stream_->run([&] { ranks_->reduce_scatter_sum({&part, 1}, sum); }));
    EXPECT_EQ(fetched(sum), values);
  }
  const Tensor own = on_gpu(values);
  comm_stream_->wait(comm_stream_->run([&] {
    ranks_->all_gather({&own, 1});
    ranks_->all_reduce_max(own);
  }));
  EXPECT_EQ(fetched(own), values);
  EXPECT_EQ(ranks_->bytes_sent(), 0);
}

TEST_F(NcclAlone, CarriesHostMemory) {
  std::array<std::byte, 5> mine{std::byte{1}, std::byte{2}, std::byte{3}}, all{};
  ranks_->gather_host(mine, all);
  EXPECT_EQ(all, mine);
  ranks_->broadcast_host(mine, 0);
  EXPECT_EQ(all, mine);
  EXPECT_NO_THROW(ranks_->barrier());
  EXPECT_NO_THROW(ranks_->gather_host({}, {}));
}

// Run, recorded, replayed: a graph rereads its operands, and NCCL does not break the recording.
TEST_F(NcclAlone, IsRecordedInAGraph) {
  const auto graph = device_->make_graph_capture();
  const Tensor part = on_gpu({0, 0, 0}), half = on_gpu({1, -2, 3.5f}, DType::kBF16),
               sum = on_gpu({0, 0, 0}), sum_of_halves = on_gpu({0, 0, 0});
  for (int step = 1; step <= 4; ++step) {
    const std::vector<float> values{float(step), -2, 3.5f * float(step)};
    device_->upload(reinterpret_cast<const std::byte*>(values.data()), part);
    graph->run([&] {
      comm_stream_->wait(comm_stream_->run([&] {
        ranks_->reduce_scatter_sum({&part, 1}, sum);
        ranks_->reduce_scatter_sum({&half, 1}, sum_of_halves);
        ranks_->all_gather({&sum, 1});
        ranks_->all_reduce_max(sum);
      }));
    });
    EXPECT_EQ(graph->replayed(), step > 2) << step;
    EXPECT_EQ(fetched(sum), values) << step;
    EXPECT_EQ(fetched(sum_of_halves), (std::vector<float>{1, -2, 3.5f})) << step;
  }
  ranks_->barrier();  // and still works outside
}

#ifdef MPT_FAKE_CUDA
TEST_F(NcclAlone, AWaitThatLastsTooLongEndsAllCalls) {
  fake_nccl::reset();
  ranks_ = make_nccl_transport({}, {.timeout = 150ms, .stream = comm_stream_->stream()});
  const auto stuck = [] {
    while (fake_nccl::aborted() == 0) std::this_thread::sleep_for(1ms);
  };
  EXPECT_ERROR(ranks_->wait_for_device(stuck), "rank 0 of 1, NCCL", "did not finish within 0.15 s");
  const Tensor own = on_gpu({1});
  EXPECT_ERROR(ranks_->all_gather({&own, 1}), "did not finish within 0.15 s");
  EXPECT_ERROR(ranks_->wait_for_device([] {}), "did not finish within 0.15 s");
  EXPECT_EQ(fake_nccl::aborted(), 1);
}

TEST_F(NcclAlone, AFaultThatNcclReportsEndsTheWait) {
  fake_nccl::reset();
  const auto stuck = [] {
    fake_nccl::set_async_error(ncclRemoteError);
    while (fake_nccl::aborted() == 0) std::this_thread::sleep_for(1ms);
    throw error("what the GPU says then");
  };
  EXPECT_ERROR(ranks_->wait_for_device(stuck),
               "another rank failed, or the connection to it was lost", "remote process exited");
  fake_nccl::reset();
}

// The graph belongs to the thread that receives the failure: nobody could free it if they had to
// wait.
TEST_F(NcclAlone, AFailureWaitsForNoGraph) {
  fake_nccl::reset();
  auto graph = device_->make_graph_capture();
  const Tensor own = on_gpu({1});
  for (int step = 1; step <= 3; ++step)
    graph->run(
        [&] { comm_stream_->wait(comm_stream_->run([&] { ranks_->all_reduce_max(own); })); });
  ASSERT_TRUE(graph->replayed());
  ranks_->abort("the disk is full");
  EXPECT_ERROR(ranks_->barrier(), "the disk is full");
  graph.reset();
  ranks_.reset();
  EXPECT_EQ(fake_nccl::aborted(), 1);
}

TEST_F(NcclAlone, GuardsEveryWaitForTheDevice) {
  int waits = 0;
  device_->guard_waits([&](const std::function<void()>& wait) {
    ++waits;
    ranks_->wait_for_device(wait);
  });
  const Tensor own = on_gpu({1, 2});
  EXPECT_EQ(waits, 1);
  EXPECT_EQ(fetched(own)[1], 2);
  EXPECT_EQ(waits, 2);
  device_->synchronize();
  EXPECT_EQ(waits, 3);
  ranks_->abort("the test ends it");
  EXPECT_ERROR(device_->synchronize(), "the test ends it");
  device_->guard_waits({});
  EXPECT_NO_THROW(device_->synchronize());
  EXPECT_EQ(waits, 4);
}

TEST_F(NcclAlone, WhatAWaitThrowsComesOut) {
  EXPECT_ERROR(ranks_->wait_for_device([] { throw error("a fault of its own"); }),
               "a fault of its own");
  EXPECT_NO_THROW(ranks_->wait_for_device([] {}));
}

// --- several ranks: each has a stream, and streams run in any order that events allow ------------

class Nccl : public test::GpuTest {
 protected:
  static constexpr int64_t kRanks = 3;

  void SetUp() override {
    GpuTest::SetUp();
    fake_nccl::reset();
    fake_cuda::set_execution(fake_cuda::Execution::kOvertaking);
    for (cudaStream_t& stream : streams_) cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    begin();
  }
  void TearDown() override {
    for (auto& rank : ranks_) rank.reset();
    for (const cudaStream_t stream : streams_) cudaStreamDestroy(stream);
    fake_cuda::set_execution(fake_cuda::Execution::kAtOnce);
    GpuTest::TearDown();
  }
  // Each in a thread: they wait for each other over TCP.
  void begin() {
    const int port = free_port();  // these tests may run in parallel
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < kRanks; ++rank)
      threads.emplace_back([this, rank, port] {
        ranks_[size_t(rank)] = make_nccl_transport(
            {.rank = rank,
             .size = kRanks,
             .launcher = Launcher::kTorchrun,
             .master_address = "127.0.0.1",
             .master_port = port,
             .run_id = "nccl test"},
            {.timeout = 20s, .stream = {Backend::kCuda, streams_[size_t(rank)]}});
      });
    for (std::thread& thread : threads) thread.join();
  }
  void synchronize() const { check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }

  // Returns the parts of a rank, in one allocation, separated by `gap` elements.
  std::vector<Tensor> parts(DType type, const std::array<int64_t, kRanks>& lengths, int64_t gap) {
    const int64_t size = size_of(type);
    int64_t all = 0;
    for (const int64_t n : lengths) all += n + gap;
    std::byte* next = gpu_.allocator().bytes({"data"}, all * size + 1);
    std::vector<Tensor> views;
    for (const int64_t n : lengths) {
      views.push_back({next, type, 1, n, n});
      next += (n + gap) * size;
    }
    return views;
  }
  // Small whole numbers: sums are exact in any order and in bf16.
  static float given(int64_t rank, int64_t part, int64_t i) {
    return float((rank * 5 + part * 3 + i) % 11 - 4);
  }
  void set(const Tensor& t, const std::function<float(int64_t)>& value) {
    std::vector<float> floats;
    std::vector<bf16> halves;
    for (int64_t i = 0; i < t.elements(); ++i)
      floats.push_back(value(i)), halves.push_back(bf16_nearest(value(i)));
    const void* data =
        t.dtype == DType::kF32 ? static_cast<const void*>(floats.data()) : halves.data();
    if (t.elements() > 0) gpu_.write(t.data, data, t.elements() * size_of(t.dtype));
  }
  std::vector<float> fetched(const Tensor& t) {
    std::vector<float> values(size_t(t.elements()));
    if (t.elements() > 0) gpu_.read(values.data(), t.data, int64_t(values.size() * sizeof(float)));
    return values;
  }

  void expect_sums(DType type, const std::array<int64_t, kRanks>& lengths, int64_t gap) {
    std::array<std::vector<Tensor>, kRanks> given_parts;
    std::array<Tensor, kRanks> sums;
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      given_parts[size_t(rank)] = parts(type, lengths, gap);
      for (int64_t part = 0; part < kRanks; ++part)
        set(given_parts[size_t(rank)][size_t(part)],
            [&](int64_t i) { return given(rank, part, i); });
      const int64_t n = lengths[size_t(rank)];
      sums[size_t(rank)] = gpu_.allocator().tensor({"data"}, DType::kF32, 1, n + 1).columns(0, n);
    }
    for (size_t rank = 0; rank < kRanks; ++rank)
      ranks_[rank]->reduce_scatter_sum(given_parts[rank], sums[rank]);
    synchronize();
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      std::vector<float> expected;
      for (int64_t i = 0; i < lengths[size_t(rank)]; ++i)
        expected.push_back(given(0, rank, i) + given(1, rank, i) + given(2, rank, i));
      EXPECT_EQ(fetched(sums[size_t(rank)]), expected) << "rank " << rank;
    }
  }
  void expect_gathered(const std::array<int64_t, kRanks>& lengths, int64_t gap) {
    std::array<std::vector<Tensor>, kRanks> views;
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      views[size_t(rank)] = parts(DType::kF32, lengths, gap);
      set(views[size_t(rank)][size_t(rank)], [&](int64_t i) { return given(rank, 7, i); });
    }
    for (size_t rank = 0; rank < kRanks; ++rank) ranks_[rank]->all_gather(views[rank]);
    synchronize();
    for (int64_t rank = 0; rank < kRanks; ++rank)
      for (int64_t part = 0; part < kRanks; ++part) {
        std::vector<float> expected;
        for (int64_t i = 0; i < lengths[size_t(part)]; ++i) expected.push_back(given(part, 7, i));
        EXPECT_EQ(fetched(views[size_t(rank)][size_t(part)]), expected) << rank << " " << part;
      }
  }

  test::Gpu gpu_;
  std::array<cudaStream_t, kRanks> streams_{};
  std::array<std::unique_ptr<Transport>, kRanks> ranks_;
};

using Calls = std::vector<std::string>;

TEST_F(Nccl, SumsOfEqualPartsSideBySideAreOneCall) {
  for (const DType type : {DType::kF32, DType::kBF16}) expect_sums(type, {300, 300, 300}, 0);
  EXPECT_EQ(fake_nccl::calls(), (Calls{"ncclReduceScatter", "ncclReduceScatter"}));
  EXPECT_EQ(ranks_[1]->bytes_sent(), 2 * 300 * 4 + 2 * 300 * 2);
}

TEST_F(Nccl, OtherSumsGoToEachRankByItself) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    expect_sums(type, {300, 0, 70}, 0);
    expect_sums(type, {40, 40, 40}, 8);
  }
  EXPECT_EQ(fake_nccl::calls(), Calls(10, "ncclReduce"));
}

TEST_F(Nccl, NothingIsSummedWithoutACall) {
  expect_sums(DType::kF32, {0, 0, 0}, 0);
  expect_gathered({0, 0, 0}, 0);
  EXPECT_EQ(fake_nccl::calls(), Calls());
}

TEST_F(Nccl, GathersEqualPartsSideBySideInOneCall) {
  expect_gathered({70, 70, 70}, 0);
  EXPECT_EQ(fake_nccl::calls(), (Calls{"ncclAllGather"}));
  EXPECT_EQ(ranks_[0]->bytes_sent(), 2 * 70 * 4);
}

TEST_F(Nccl, OtherPartsAreSentByEachRank) {
  expect_gathered({70, 0, 33}, 0);
  expect_gathered({8, 8, 8}, 4);
  EXPECT_EQ(fake_nccl::calls(), Calls(5, "ncclBroadcast"));
}

TEST_F(Nccl, SumsMayTakeThePlaceOfTheOwnPart) {
  std::array<std::vector<Tensor>, kRanks> given_parts;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    given_parts[size_t(rank)] = parts(DType::kF32, {50, 50, 50}, 0);
    for (int64_t part = 0; part < kRanks; ++part)
      set(given_parts[size_t(rank)][size_t(part)], [&](int64_t i) { return given(rank, part, i); });
  }
  for (size_t rank = 0; rank < kRanks; ++rank)
    ranks_[rank]->reduce_scatter_sum(given_parts[rank], given_parts[rank][rank]);
  synchronize();
  for (int64_t rank = 0; rank < kRanks; ++rank)
    EXPECT_EQ(fetched(given_parts[size_t(rank)][size_t(rank)])[7],
              given(0, rank, 7) + given(1, rank, 7) + given(2, rank, 7));
}

TEST_F(Nccl, Maxima) {
  std::array<Tensor, kRanks> values;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    values[size_t(rank)] = gpu_.allocator().tensor({"data"}, DType::kF32, 1, 20);
    set(values[size_t(rank)],
        [&](int64_t i) { return i == 0 && rank > 0 ? NAN : given(rank, 0, i); });
  }
  for (size_t rank = 0; rank < kRanks; ++rank) ranks_[rank]->all_reduce_max(values[rank]);
  synchronize();
  for (const Tensor& of_rank : values)
    for (int64_t i = 0; i < 20; ++i)
      EXPECT_EQ(
          fetched(of_rank)[size_t(i)],
          i == 0 ? given(0, 0, 0) : std::max({given(0, 0, i), given(1, 0, i), given(2, 0, i)}));
}
#endif

}  // namespace
}  // namespace mpt

#endif
