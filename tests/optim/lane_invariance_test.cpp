// Lanes' parts of an update block and their exchanges; sums of squares for any number of threads.
#include <algorithm>
#include <vector>

#include <gtest/gtest.h>
#include <omp.h>

#include "device/backends.h"
#include "optim/update/optimizer_ops_on.h"
#include "support/draws.h"
#include "support/host_matrix.h"
#include "support/lockstep_exec.h"

namespace mpt {
namespace {

using test::Draws;
using test::HostMatrix;

// The lockstep lanes do exchange values: otherwise the tests above would prove less than they
// claim.
TEST(LaneInvariance, LockstepLanesMeetInReduceMax) {
  std::vector<float> found(4 * 8);
  test::run_lockstep<8>(4, [&](auto group, int64_t block) {
    found[size_t(block * 8 + group.lane())] =
        group.reduce_max(float((group.lane() * 5 + block) % 8));
  });
  for (const float most : found) EXPECT_EQ(most, 7.0f);
}

// Elements owned by a lane: disjoint parts in order that cover the update block.
TEST(LaneInvariance, LanePartsCoverTheUnit) {
  for (const int64_t count : {0, 1, 7, 8, 9, 127, 128, 255, 256}) {
    test::LockstepTeam<32> team;
    int64_t next = 1024;
    for (int64_t lane = 0; lane < 32; ++lane) {
      const LanePart<test::LockstepGroup<32>> part({team, lane},
                                                   {.row = 3, .col = 1024, .count = count});
      ASSERT_GE(part.size, 0);
      ASSERT_LE(part.size, part.kSize);
      if (part.size > 0) {
        ASSERT_EQ(part.col, next);
      }
      next += part.size;
    }
    ASSERT_EQ(next, 1024 + count);
  }
}

TEST(LaneInvariance, BlockGridCoversEveryElementOnce) {
  for (const int64_t rows : {0, 1, 3})
    for (const int64_t cols : {1, 255, 256, 257, 600}) {
      const BlockGrid grid{rows, cols};
      std::vector<int> seen(size_t(rows * cols));
      for (int64_t u = 0; u < grid.blocks(); ++u) {
        const BlockSpan span = grid.span(u);
        ASSERT_GT(span.count, 0);
        ASSERT_LE(span.count, kUpdateBlock);
        ASSERT_LE(span.col + span.count, cols);
        for (int64_t i = 0; i < span.count; ++i) ++seen[size_t(span.row * cols + span.col + i)];
      }
      for (const int times : seen) ASSERT_EQ(times, 1) << rows << " " << cols;
    }
}

TEST(LaneInvariance, ASpanOfUnitsIsTheElementsBetween) {
  for (const int64_t cols : {1, 255, 256, 257, 600}) {
    const BlockGrid grid{3, cols};
    for (int64_t first = 0; first < grid.blocks(); ++first)
      for (int64_t end = first + 1; end <= grid.blocks(); ++end) {
        int64_t elements = 0;
        for (int64_t u = first; u < end; ++u) elements += grid.span(u).count;
        const BlockSpan flat = grid.flat(first, end), begin = grid.span(first);
        ASSERT_EQ(flat.row, 0);
        ASSERT_EQ(flat.col, begin.row * cols + begin.col);
        ASSERT_EQ(flat.count, elements);
      }
  }
}

TEST(ThreadInvariance, SumOfSquares) {
  const auto device = make_cpu_device(3);
  const auto ops = make_ops<OptimizerOps>(device->stream());
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t cols : {1, 100, 128, 129, 40000}) {
      HostMatrix x(dtype, {.rows = 5, .cols = cols, .padding = 3});
      Draws draws(23);
      x.fill([&](int64_t, int64_t) { return draws.signed_binades(-10, 10); });
      const auto pieces = size_t(square_sums(5, cols));
      std::vector<double> first(pieces);
      for (const int threads : {1, 2, 3}) {
        omp_set_num_threads(threads);
        std::vector<double> sums(pieces);
        ops->sum_of_squares(x, {reinterpret_cast<std::byte*>(sums.data()), DType::kF64, 1,
                                int64_t(pieces), int64_t(pieces)});
        if (threads == 1) first = sums;
        ASSERT_EQ(sums, first) << cols << " columns, " << threads << " threads";
      }
      long double exact = 0, sum = 0;
      for (int64_t r = 0; r < 5; ++r)
        for (int64_t c = 0; c < cols; ++c) exact += (long double)(x.at(r, c)) * x.at(r, c);
      for (const double piece : first) sum += piece;
      // All terms are positive: each of the roundings costs at most 2^-53 of the sum.
      EXPECT_NEAR(double(sum), double(exact), double(exact) * double(5 * cols) * 0x1p-53);
    }
}

}  // namespace
}  // namespace mpt
