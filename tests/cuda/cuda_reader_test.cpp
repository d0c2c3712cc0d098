// Reading GPU memory while the GPU works.
#include <algorithm>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/gpu.h"
#include "device/cuda/cuda_handles.h"
#include "device/cuda/cuda_memory.h"

namespace mpt {
namespace {

class CudaReaderTest : public test::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    cudaStream_t stream = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
               "cudaStreamCreateWithFlags");
    stream_.reset(stream);
    void* memory = nullptr;
    check_cuda(cudaMalloc(&memory, kBytes), "cudaMalloc");
    memory_.reset(memory);
  }
  [[nodiscard]] Tensor view(int64_t first, int64_t rows, int64_t cols, int64_t stride) const {
    return {static_cast<std::byte*>(memory_.get()) + first, DType::kU8, rows, cols, stride};
  }
  void write(const std::vector<uint8_t>& bytes) {
    check_cuda(cudaMemcpyAsync(memory_.get(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice,
                               stream_.get()),
               "cudaMemcpyAsync");
  }
  // On another thread if that is allowed.
  static void read(DeviceReader& reader, const std::vector<Tensor>& blocks,
                   const DeviceReader::Take& take) {
    if (!reader.beside()) return reader.read(blocks, take);
    std::thread([&] { reader.read(blocks, take); }).join();
  }

  static constexpr size_t kBytes = size_t{1} << 16;
  Owned<cudaStream_t, cudaStreamDestroy> stream_;
  Owned<void*, cudaFree> memory_;
};

std::vector<uint8_t> pattern(size_t size, int k) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = uint8_t((i * 7 + size_t(k) * 13) >> 1);
  return bytes;
}

// Rows with and without padding, a single row, nothing; more blocks than buffers.
TEST_F(CudaReaderTest, BlocksComePackedAndInOrder) {
  const std::vector<uint8_t> bytes = pattern(kBytes, 1);
  write(bytes);
  const auto reader = make_cuda_reader(stream_.get(), 0);
  reader->begin();
  std::vector<Tensor> blocks;
  std::vector<uint8_t> expected;
  for (int64_t i = 0; i < 9; ++i) {
    const int64_t first = i * 900, rows = i % 3 + 1, cols = 5 + 11 * i, stride = cols + i % 4;
    blocks.push_back(
        view(first, rows, cols, rows == 1 ? 3 : stride));  // irrelevant stride of a single row
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t col = 0; col < cols; ++col)
        expected.push_back(bytes[size_t(first + row * stride + col)]);
    blocks.push_back(view(first, 0, 4, 4));
  }
  std::vector<uint8_t> found;
  int64_t taken = 0;
  read(*reader, blocks, [&](std::span<const std::byte> block) {
    ++taken;
    for (const std::byte b : block) found.push_back(uint8_t(b));
  });
  EXPECT_EQ(taken, std::ssize(blocks));
  EXPECT_EQ(found, expected);
}

// Reads the results of work before begin(), even if that runs late.
TEST_F(CudaReaderTest, ReadsWhatTheWorkBeforeLeaves) {
#ifdef MPT_FAKE_CUDA
  fake_cuda::set_execution(fake_cuda::Execution::kLate);
#endif
  const auto reader = make_cuda_reader(stream_.get(), 0);
  for (int k = 1; k <= 3; ++k) {
    const std::vector<uint8_t> bytes = pattern(kBytes, k);
    check_cuda(cudaMemsetAsync(memory_.get(), 0, kBytes, stream_.get()), "cudaMemsetAsync");
    write(bytes);
    reader->begin();
    std::vector<uint8_t> found;
    read(*reader, {view(0, 1, int64_t{kBytes}, 0)}, [&](std::span<const std::byte> block) {
      for (const std::byte b : block) found.push_back(uint8_t(b));
    });
    EXPECT_EQ(found, bytes);
  }
#ifdef MPT_FAKE_CUDA
  fake_cuda::set_execution(fake_cuda::Execution::kAtOnce);
#endif
}

// The fake CUDA serves one thread, and signals that by having no copy engine; every GPU that this
// program supports has one.
TEST_F(CudaReaderTest, ReadsBesideTheWorkWhereThereIsACopyEngine) {
#ifdef MPT_FAKE_CUDA
  EXPECT_FALSE(make_cuda_reader(stream_.get(), 0)->beside());
#else
  EXPECT_TRUE(make_cuda_reader(stream_.get(), 0)->beside());
#endif
}

// A reader whose consumer threw remains usable.
TEST_F(CudaReaderTest, GoesOnAfterATakerThatThrew) {
  const std::vector<uint8_t> bytes = pattern(kBytes, 4);
  write(bytes);
  const auto reader = make_cuda_reader(stream_.get(), 0);
  reader->begin();
  const std::vector<Tensor> blocks{view(0, 1, 100, 100), view(100, 1, 100, 100),
                                   view(200, 1, 100, 100)};
  EXPECT_THROW(reader->read(blocks, [](std::span<const std::byte>) { throw Error("full"); }),
               Error);
  reader->begin();
  std::vector<uint8_t> found;
  reader->read(blocks, [&](std::span<const std::byte> block) {
    for (const std::byte b : block) found.push_back(uint8_t(b));
  });
  EXPECT_TRUE(std::equal(found.begin(), found.end(), bytes.begin(), bytes.begin() + 300));
  EXPECT_THROW(reader->read(std::vector{view(0, 1, DeviceReader::kMostBytes + 1, 1)},
                            [](std::span<const std::byte>) {}),
               LogicError);
}

}  // namespace
}  // namespace mpt
