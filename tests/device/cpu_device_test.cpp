// Memory, copies, iteration and tile GEMMs of the CPU backend.
#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <omp.h>

#include "device/backends.h"
#include "device/cpu/cpu_exec.h"
#include "device/cpu/tile_gemm.h"
#include "support/draws.h"
#include "support/expect_error.h"
#include "support/host_matrix.h"

namespace mpt {
namespace {

using test::HostMatrix;

TEST(CpuAllocator, AlignedAndZero) {
  const auto allocator = make_cpu_device(1)->make_allocator();
  for (const int64_t count : {1, 3, 64, 65, 4097, 3 << 20}) {
    std::byte* bytes = allocator->bytes({"weights"}, count);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes) % kAlignment, 0u);
    EXPECT_TRUE(std::all_of(bytes, bytes + count, [](std::byte b) { return b == std::byte{0}; }));
    std::fill(bytes, bytes + count, std::byte{0xFF});
  }
}

TEST(CpuAllocator, BuffersAreDisjoint) {
  const auto allocator = make_cpu_device(1)->make_allocator();
  std::byte* first = allocator->bytes({"data"}, 100);
  std::byte* second = allocator->bytes({"data"}, 100);
  EXPECT_TRUE(first + 100 <= second || second + 100 <= first);
}

TEST(CpuAllocator, EmptyBuffersAreNoError) {
  const auto allocator = make_cpu_device(1)->make_allocator();
  EXPECT_NE(allocator->bytes({"data"}, 0), nullptr);
  EXPECT_EQ(allocator->use().total(), 0);
}

TEST(CpuAllocator, CountsAsThePlanDoes) {
  const auto real = make_cpu_device(1)->make_allocator();
  PlanningAllocator planned;
  for (Allocator* allocator : {static_cast<Allocator*>(&planned), real.get()}) {
    allocator->bytes(kScratchMemory, 1);
    allocator->bytes(kScratchMemory, 64);
    allocator->bytes(kScratchMemory, 65);
    const Tensor t = allocator->tensor({"weights"}, DType::kBF16, 3, 11);
    EXPECT_EQ(t.rows, 3);
    EXPECT_EQ(t.cols, 11);
    EXPECT_EQ(t.stride, 11);
    EXPECT_EQ(t.dtype, DType::kBF16);
    EXPECT_EQ(t.data == nullptr, allocator == &planned);
    allocator->tensor({"logits"}, DType::kF64, 1, 9);
    allocator->tensor({"data"}, DType::kI32, 0, 9);
    EXPECT_EQ(allocator->use().of(kScratchMemory), 64 + 64 + 128);
    EXPECT_EQ(allocator->use().of({"weights"}), 128);
    EXPECT_EQ(allocator->use().of({"logits"}), 128);
    EXPECT_EQ(allocator->use().of({"data"}), 0);
    EXPECT_EQ(allocator->use().of({"activations"}), 0);
    EXPECT_EQ(allocator->use().total(), 512);
  }
}

TEST(CpuAllocator, TooMuchIsAnErrorThatSaysWhatFor) {
  const auto allocator = make_cpu_device(1)->make_allocator();
  EXPECT_ERROR(allocator->bytes({"activations"}, int64_t{1} << 60), "out of memory", "activations",
               "GiB");
}

TEST(CpuDevice, CopiesLogicalElementsOnly) {
  const auto device = make_cpu_device(1);
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t padding : {0, 5})
      for (const int64_t rows : {0, 1, 3}) {
        HostMatrix source(dtype, {rows, 7, padding}), target(dtype, {rows, 7, padding});
        source.fill([](int64_t r, int64_t c) { return float(10 * r + c); });
        std::vector<std::byte> packed(size_t(rows * 7 * size_of(dtype)));
        device->download(source, packed.data());
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t c = 0; c < 7; ++c)
            ASSERT_EQ(memcmp(packed.data() + (r * 7 + c) * size_of(dtype),
                             source.view().data + (r * source.view().stride + c) * size_of(dtype),
                             size_t(size_of(dtype))),
                      0);
        device->upload(packed.data(), target);
        EXPECT_EQ(target, source);
        EXPECT_TRUE(target.padding_untouched());
      }
}

TEST(CpuDevice, SaysWhatItIs) {
  const auto one = make_cpu_device(1), two = make_cpu_device(2);
  EXPECT_TRUE(one->name().starts_with("CPU: ")) << one->name();
  EXPECT_TRUE(one->name().ends_with(", 1 thread")) << one->name();
  EXPECT_TRUE(two->name().ends_with(", 2 threads")) << two->name();
  EXPECT_GT(one->memory_bytes(), int64_t{1} << 20);
}

TEST(CpuDevice, ThreadsOfTheConfigAreUsed) {
  for (const int threads : {1, 2, 3}) {
    const auto device = make_cpu_device(threads);
    EXPECT_EQ(omp_get_max_threads(), threads);
  }
  const auto all = make_cpu_device(0);
  EXPECT_GE(omp_get_max_threads(), 1);
}

constexpr int64_t kCounts[] = {0, 1, 2, 31, 32, 33, 1000};

TEST(CpuExec, EveryIndexOnce) {
  for (const int threads : {1, 2, 3}) {
    omp_set_num_threads(threads);
    for (const int64_t n : kCounts) {
      const auto none = std::vector<int>(size_t(n), 0), once = std::vector<int>(size_t(n), 1);
      std::vector<int> elements = none, rows = none, blocks = none;
      CpuExec exec;
      exec.elements(n, [&](int64_t i) { ++elements[size_t(i)]; });
      exec.rows(n, [&](auto, int64_t i) { ++rows[size_t(i)]; });
      exec.blocks(n, [&](auto, int64_t i) { ++blocks[size_t(i)]; });
      EXPECT_EQ(elements, once);
      EXPECT_EQ(rows, once);
      EXPECT_EQ(blocks, once);
    }
  }
}

// C (+)= A B with A in either layout, against FP64.
template <Accumulate kAccumulate>
void expect_tile(int64_t m, int64_t n, int64_t k, Causal causal = Causal::kNo) {
  test::Draws draws(51);
  std::vector<float> a(size_t(m * k)), b(size_t(k * (n + 3))), c(size_t(m * (n + 5)));
  for (std::vector<float>* x : {&a, &b, &c})
    for (float& value : *x) value = draws.bell(1);
  for (const bool transposed : {false, true}) {
    std::vector<float> found = c;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t l = 0; l < k; ++l)
        if ((causal == Causal::kUpToRow && l > i) || (causal == Causal::kFromRowOn && l < i))
          a[size_t(transposed ? l * m + i : i * k + l)] = 0.0f;
    const TileA view{a.data(), transposed ? 1 : k, transposed ? m : 1};
    tile_gemm(kAccumulate, {m, n, k, view, b.data(), n + 3, found.data(), n + 5, causal});
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n + 5; ++j) {
        const float before = c[size_t(i * (n + 5) + j)], after = found[size_t(i * (n + 5) + j)];
        if (j >= n) {
          ASSERT_EQ(after, before) << "beyond the tile";
          continue;
        }
        if (causal == Causal::kOutput && j > i) continue;
        double sum = kAccumulate == Accumulate::kYes ? before : 0.0, size = std::fabs(sum);
        for (int64_t l = 0; l < k; ++l) {
          const double term =
              double(a[size_t(transposed ? l * m + i : i * k + l)]) * b[size_t(l * (n + 3) + j)];
          sum += term;
          size += std::fabs(term);
        }
        ASSERT_NEAR(after, sum, double(k + 1) * 0x1p-24 * size) << m << " " << n << " " << k;
      }
  }
}

TEST(TileGemm, EveryRemainderOfRows) {
  for (const int64_t m : {1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 23, 24, 25, 48, 64})
    for (const int64_t n : {16, 32, 48, 64, 80, 112})
      for (const int64_t k : {0, 1, 7, 48}) {
        expect_tile<Accumulate::kNo>(m, n, k);
        expect_tile<Accumulate::kYes>(m, n, k);
      }
}

TEST(TileGemm, CausalTiles) {
  for (const int64_t size : {16, 32, 48, 64}) {
    expect_tile<Accumulate::kNo>(size, size, 24, Causal::kOutput);
    for (const Causal causal : {Causal::kUpToRow, Causal::kFromRowOn})
      for (const int64_t n : {16, 48, 64, 80}) expect_tile<Accumulate::kYes>(size, n, size, causal);
  }
}

TEST(Tensor, Views) {
  HostMatrix x(DType::kBF16, {4, 6, 2});
  const Tensor t = x;
  EXPECT_EQ(t.elements(), 24);
  EXPECT_EQ(t.bytes(), (3 * 8 + 6) * 2);
  EXPECT_FALSE(t.contiguous());
  EXPECT_TRUE(t.row_range(1, 1).contiguous());
  const Tensor part = t.row_range(1, 2).columns(2, 3);
  EXPECT_EQ(part.data - t.data, (8 + 2) * 2);
  EXPECT_EQ(part.rows, 2);
  EXPECT_EQ(part.cols, 3);
  EXPECT_EQ(part.stride, 8);
  EXPECT_THROW(std::ignore = t.columns(4, 3), LogicError);
  EXPECT_THROW(std::ignore = t.columns(-1, 3), LogicError);
  EXPECT_THROW(std::ignore = t.row_range(3, 2), LogicError);
  EXPECT_EQ(PlanningAllocator().tensor({"data"}, DType::kF32, 4, 6).columns(1, 2).data, nullptr);
}

}  // namespace
}  // namespace mpt
