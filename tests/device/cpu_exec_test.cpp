// The CPU's iteration over rows, with and without knowledge of their memory.
#include "device/cpu/cpu_exec.h"

#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "device/cpu/gemm_packing.h"

namespace mpt {
namespace {

// Adds 1 to every element, in two passes over each row.
struct AddInPasses {
  float* rows;
  int64_t cols;

  template <class G>
  void operator()(G group, int64_t row) const {
    float* const x = rows + row * cols;
    group.each(cols, [=](int64_t i) { x[i] += 0.25f; });
    group.each(cols, [=](int64_t i) { x[i] += 0.75f; });
  }
};
struct AddInPassesAhead : AddInPasses {
  [[nodiscard]] std::array<RowMemory, 2> memory(int64_t row) const {
    return {RowMemory::of(rows + row * cols, cols), RowMemory::of<float>(nullptr, cols)};
  }
};

template <class F>
void expect_every_element_once() {
  for (const int64_t cols : {0, 1, 127, 128, 129, 1000})
    for (const int64_t rows : {0, 1, 2, 7}) {
      std::vector<float> x(size_t(rows * cols)), want(x.size());
      std::iota(x.begin(), x.end(), 0.0f);
      std::iota(want.begin(), want.end(), 1.0f);
      F formula;
      formula.rows = x.data();
      formula.cols = cols;
      CpuExec().rows(rows, formula);
      EXPECT_EQ(x, want) << rows << " rows of " << cols;
    }
}

TEST(CpuExec, EveryElementOfEveryRowOnce) { expect_every_element_once<AddInPasses>(); }
TEST(CpuExec, EveryElementOfEveryRowOnceAskingAhead) {
  expect_every_element_once<AddInPassesAhead>();
}

TEST(EvenParts, FollowEachOtherAndDifferByOne) {
  for (const IndexRange all : {IndexRange{0, 0}, {5, 6}, {3, 117}, {0, 1 << 20}})
    for (const int64_t most : {1, 14, 256}) {
      const EvenParts parts = EvenParts::of_at_most(all, most);
      EXPECT_EQ(parts[0].begin, all.begin);
      EXPECT_EQ(parts[parts.count() - 1].end, all.end);
      for (int64_t i = 0; i < parts.count(); ++i) {
        EXPECT_LE(parts[i].size(), most);
        EXPECT_LE(std::abs(parts[i].size() - parts[0].size()), 1);
        EXPECT_EQ(parts[i].begin, i == 0 ? all.begin : parts[i - 1].end);
      }
    }
}

}  // namespace
}  // namespace mpt
