// GPU memory and copies, and the error without a GPU.
#include <array>
#include <limits>

#include "cuda/device_fixture.h"
#include "device/backends.h"
#include "device/cuda/cuda_handles.h"
#include "device/device.h"
#include "support/device_matrix.h"
#include "support/draws.h"
#include "support/expect_error.h"

namespace mpt {
namespace {

using test::DeviceMatrix;
using test::HostMatrix;

class CudaDevice : public test::CudaDeviceTest {
 protected:
  // Returns contiguous elements of a device tensor.
  template <class T>
  std::vector<T> fetched(const Tensor& tensor) {
    std::vector<T> values(static_cast<size_t>(tensor.elements()));
    device_->download(tensor, reinterpret_cast<std::byte*>(values.data()));
    return values;
  }
};

HostMatrix random_matrix(const HostMatrix::Shape& shape, uint64_t seed) {
  HostMatrix x(DType::kF32, shape);
  test::Draws draws(seed);
  x.fill([&](int64_t, int64_t) { return draws.bell(1); });
  return x;
}

TEST_F(CudaDevice, NamesItself) {
  EXPECT_EQ(device_->backend(), Backend::kCuda);
  EXPECT_NE(stream_of(device_->stream()), nullptr);
  for (const char* part : {"CUDA: ", " SMs, ", " GB, driver "})
    EXPECT_NE(device_->name().find(part), std::string::npos) << device_->name();
  for (const char* part : {"CUDA runtime ", "cuBLASLt "})
    EXPECT_NE(device_->libraries().find(part), std::string::npos) << device_->libraries();
  EXPECT_GT(device_->memory_bytes(), 0);
}

TEST_F(CudaDevice, CopiesTheElementsOfStridedRows) {
  const HostMatrix padded = random_matrix({.rows = 5, .cols = 7, .padding = 3}, 1);
  const DeviceMatrix there(*device_, *allocator_, padded);
  HostMatrix packed(DType::kF32, {.rows = 5, .cols = 7});
  device_->download(there, packed.view().data);
  for (int64_t r = 0; r < 5; ++r)
    for (int64_t c = 0; c < 7; ++c) ASSERT_EQ(packed.at(r, c), padded.at(r, c));

  const HostMatrix other = random_matrix({.rows = 5, .cols = 7}, 2);
  device_->upload(other.view().data, there);
  const HostMatrix after = there.fetched();
  EXPECT_TRUE(after.padding_untouched());
  for (int64_t r = 0; r < 5; ++r)
    for (int64_t c = 0; c < 7; ++c) ASSERT_EQ(after.at(r, c), other.at(r, c));
}

TEST_F(CudaDevice, CopiesOneRowOfAnyStrideAndNothing) {
  const Tensor row = allocator_->tensor({"data"}, DType::kF32, 1, 6);
  Tensor odd = row;
  odd.stride = 2;  // irrelevant for a single row
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  device_->upload(reinterpret_cast<const std::byte*>(values.data()), odd);
  EXPECT_EQ(fetched<float>(row), values);
  EXPECT_NO_THROW(device_->upload(nullptr, {nullptr, DType::kF32, 0, 6, 6}));
  EXPECT_NO_THROW(device_->download({nullptr, DType::kF32, 6, 0, 6}, nullptr));
}

#ifdef MPT_FAKE_CUDA  // a GPU's limit is just below 2 GiB
TEST_F(CudaDevice, CopiesRowsLongerThanAPitchMayBe) {
  fake_cuda::set_most_pitch(1024);
  use({.tuning = GemmTuning::kOff});
  for (const int64_t padding : {0, 3, 300}) {
    const HostMatrix x = random_matrix({.rows = 5, .cols = 300, .padding = padding}, 1);
    const DeviceMatrix there(*device_, *allocator_, x);
    HostMatrix packed(DType::kF32, {.rows = 5, .cols = 300});
    device_->download(there, packed.view().data);
    device_->upload(packed.view().data, there);
    const HostMatrix after = there.fetched();
    EXPECT_TRUE(after.padding_untouched());
    for (int64_t r = 0; r < 5; ++r)
      for (int64_t c = 0; c < 300; ++c) {
        ASSERT_EQ(packed.at(r, c), x.at(r, c));
        ASSERT_EQ(after.at(r, c), x.at(r, c));
      }
    const auto reader = device_->make_reader();
    const Tensor block = Tensor(there);
    reader->begin();
    reader->read({&block, 1}, [&](std::span<const std::byte> bytes) {
      EXPECT_EQ(memcmp(bytes.data(), packed.view().data, bytes.size()), 0);
    });
  }
}
#endif

TEST_F(CudaDevice, MemoryIsZeroAlignedAndCountedAsPlanned) {
  PlanningAllocator plan(device_->alignment());
  int64_t counted = 0;
  for (const int64_t count : {0, 1, 255, 256, 257, 100000}) {
    const std::byte* const data = allocator_->bytes({"gradients"}, count);
    plan.bytes({"gradients"}, count);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % uintptr_t(device_->alignment()), 0u);
    const auto bytes =
        fetched<uint8_t>({const_cast<std::byte*>(data), DType::kU8, 1, count, count});
    EXPECT_EQ(std::count(bytes.begin(), bytes.end(), 0), count);
    counted += align_up(count, 256);
    EXPECT_EQ(allocator_->use().of({"gradients"}), counted);
    EXPECT_EQ(plan.use().of({"gradients"}), counted);
  }
  EXPECT_EQ(allocator_->use().total(), counted);
  EXPECT_FALSE(allocator_->plans());
  EXPECT_TRUE(plan.plans());
}

TEST_F(CudaDevice, OutOfMemoryNamesPurposeAndBytes) {
  allocator_->bytes({"weights"}, int64_t{1} << 20);
  EXPECT_ERROR(allocator_->bytes({"optimizer state"}, int64_t{1} << 50), "out of GPU memory",
               "1048576.00 GiB requested for optimizer state", "free of",
               "1.0 MiB already allocated");
  // Neither counted nor in the way of later allocations.
  EXPECT_EQ(allocator_->use().of({"optimizer state"}), 0);
  EXPECT_NE(allocator_->bytes({"optimizer state"}, 1000), nullptr);
  EXPECT_NO_THROW(device_->synchronize());
}

TEST_F(CudaDevice, SendsAndReceivesImages) {
  const PinnedBuffer buffer = allocator_->pinned({"data"}, DType::kI32, 2, 3);
  ASSERT_NE(buffer.host, nullptr);
  ASSERT_NE(buffer.host, buffer.tensor.data);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(buffer.image<int32_t>()[i], 0);
  for (int i = 0; i < 6; ++i) buffer.image<int32_t>()[i] = i + 1;
  device_->send(buffer);
  device_->synchronize();
  EXPECT_EQ(fetched<int32_t>(buffer.tensor), (std::vector<int32_t>{1, 2, 3, 4, 5, 6}));

  const std::vector<int32_t> others{10, 20, 30, 40, 50, 60};
  device_->upload(reinterpret_cast<const std::byte*>(others.data()), buffer.tensor);
  device_->receive(buffer.row_range(1, 1));
  device_->synchronize();
  EXPECT_EQ(std::vector<int32_t>(buffer.image<int32_t>(), buffer.image<int32_t>() + 6),
            (std::vector<int32_t>{1, 2, 3, 40, 50, 60}));
  EXPECT_NO_THROW(device_->send(buffer.row_range(0, 0)));
  PinnedBuffer strided = buffer;
  strided.tensor.stride = 4;
  EXPECT_THROW(device_->send(strided), LogicError);
}

TEST_F(CudaDevice, RangesDoNothingWithoutAProfiler) {
  const ProfileScope outer(*device_, "step");
  const ProfileScope inner(*device_, "forward");
}

TEST_F(CudaDevice, IsFoundByNameAndRefusedByIndex) {
  EXPECT_EQ(no_cuda_device(0), "");
  EXPECT_EQ(available_backend(), Backend::kCuda);
  EXPECT_EQ(make_device({.backend = Backend::kCuda})->backend(), Backend::kCuda);
  EXPECT_ERROR(make_cuda_device({.index = 99}), "no GPU 99", "numbered from 0");
  EXPECT_ERROR(make_cuda_device({.index = -1}), "no GPU -1");
}

TEST(CudaPlanning, NeedsNoGpuAndTouchesNone) {
  const auto device = make_cuda_planning_device();
  EXPECT_EQ(device->backend(), Backend::kCuda);
  EXPECT_EQ(stream_of(device->stream()), nullptr);
  EXPECT_EQ(device->memory_bytes(), std::numeric_limits<int64_t>::max());
  PlanningAllocator plan(device->alignment());
  const Tensor x{nullptr, DType::kBF16, 64, 64, 64};
  device->gemm().reserve(plan, std::array{GemmCall{.a = x, .b = x, .d = x}});
  device->gemm().reserve(plan, std::array{GemmCall{.a = x, .b = x, .d = x}});
  EXPECT_EQ(plan.use().total(), align_up(CudaGemm::kWorkspaceBytes, device->alignment()));
  EXPECT_EQ(plan.use().of(kScratchMemory), plan.use().total());
  EXPECT_THROW(device->make_allocator(), LogicError);
  EXPECT_THROW(device->synchronize(), LogicError);
  EXPECT_THROW(device->upload(nullptr, x), LogicError);
  EXPECT_THROW(device->download(x, nullptr), LogicError);
  EXPECT_THROW(device->send({x, nullptr}), LogicError);
  EXPECT_THROW(device->receive({x, nullptr}), LogicError);
  EXPECT_THROW(device->gemm().run({.a = x, .b = x, .d = x}), LogicError);
}

TEST(CudaErrors, CarryCallAnswerAndPlace) {
  try {
    check_cuda(cudaErrorInvalidValue, "cudaSomething");
    FAIL() << "no error";
  } catch (const CudaError& caught) {
    EXPECT_EQ(caught.call(), "cudaSomething");
    EXPECT_NE(caught.answer().find("cudaErrorInvalidValue"), std::string::npos);
    EXPECT_NE(std::string(caught.file()).find("cuda_device_test.cpp"), std::string::npos);
    EXPECT_GT(caught.line(), 0u);
    EXPECT_NE(std::string(caught.what()).find(caught.answer()), std::string::npos);
  }
  EXPECT_NO_THROW(check_cuda(cudaSuccess, "cudaSomething"));
}

}  // namespace
}  // namespace mpt
