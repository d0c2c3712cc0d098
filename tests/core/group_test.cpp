// Groups: every index once, sums in the documented order, maxima of one lane and of many.
#include "core/group.h"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "support/draws.h"
#include "support/lockstep_group.h"

namespace mpt {
namespace {

constexpr int64_t kCounts[] = {0, 1, 2, 31, 32, 33, 63, 64, 1000};

std::vector<float> values(int64_t count) {
  test::Draws draws(61);
  std::vector<float> x(static_cast<size_t>(count));
  for (float& value : x) value = draws.signed_binades(-10, 10);
  return x;
}

// The order promised by the header: 32 running sums, folded in halves. One scalar addition at a
// time.
template <class T>
T sum_in_order(const std::vector<float>& x) {
  std::array<T, 32> running{};
  for (size_t i = 0; i < x.size(); ++i) {
    volatile T next = running[i % 32] + T(x[i]);
    running[i % 32] = next;
  }
  for (size_t width = 16; width > 0; width /= 2)
    for (size_t j = 0; j < width; ++j) {
      volatile T next = running[j] + running[j + width];
      running[j] = next;
    }
  return running[0];
}

TEST(SerialGroup, EachIndexOnce) {
  for (const int64_t n : kCounts) {
    std::vector<int> seen(size_t(n) + 1);
    SerialGroup::each(n, [&](int64_t i) { ++seen[size_t(i)]; });
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(seen[size_t(i)], 1);
    EXPECT_EQ(seen[size_t(n)], 0);
  }
}

TEST(SerialGroup, SumInTheDocumentedOrder) {
  for (const int64_t n : kCounts) {
    const std::vector<float> x = values(n);
    const float sum = SerialGroup::sum(n, [&](int64_t i) { return x[size_t(i)]; });
    EXPECT_EQ(bits_of(sum), bits_of(sum_in_order<float>(x))) << n;
    const double wide = SerialGroup::sum(n, [&](int64_t i) { return double(x[size_t(i)]); });
    EXPECT_EQ(wide, sum_in_order<double>(x)) << n;
  }
}

TEST(SerialGroup, SumOfNothingIsPlusZero) {
  EXPECT_EQ(bits_of(SerialGroup::sum(0, [](int64_t) { return 1.0f; })), 0u);
}

TEST(SerialGroup, SumsNotANumber) {
  for (const int64_t place : {0, 31, 32, 99}) {
    const float sum = SerialGroup::sum(100, [=](int64_t i) { return i == place ? NAN : 1.0f; });
    EXPECT_TRUE(std::isnan(sum)) << place;
  }
}

TEST(SerialGroup, MaximumAtEveryPlace) {
  for (const int64_t n : kCounts)
    for (int64_t place = 0; place < n; ++place) {
      const float most =
          SerialGroup::max(n, [=](int64_t i) { return i == place ? -1.0f : -float(i + 2); });
      ASSERT_EQ(most, -1.0f) << n << " " << place;
    }
}

TEST(SerialGroup, MaximumOfNothing) {
  EXPECT_EQ(SerialGroup::max(0, [](int64_t) { return 1.0f; }), -INFINITY);
}

TEST(SerialGroup, MaximumIgnoresNotANumber) {
  for (const int64_t n : {1, 33, 100}) {
    EXPECT_EQ(SerialGroup::max(n, [](int64_t) { return NAN; }), -INFINITY);
    for (const int64_t place : {int64_t{0}, n / 2, n - 1}) {
      const float most = SerialGroup::max(n, [=](int64_t i) { return i == place ? -3.0f : NAN; });
      EXPECT_EQ(most, -3.0f) << n << " " << place;
    }
  }
}

TEST(SerialGroup, OneLaneOwnsAll) {
  EXPECT_EQ(SerialGroup::kLanes, 1);
  EXPECT_EQ(SerialGroup::lane(), 0);
  EXPECT_EQ(SerialGroup::reduce_max(-2.5f), -2.5f);
  EXPECT_EQ(SerialGroup::reduce_max(-2.5f, 1), -2.5f);
}

// The operation that update block formulas need from a group of many lanes: maxima over aligned
// runs.
TEST(LockstepGroup, MaximaOfAlignedRuns) {
  constexpr float kLane[] = {-3, -5, 7, 1, -2, -8, 0, 4};
  float pairs[8], fours[8], all[8];
  test::run_lockstep<8>(1, [&](test::LockstepGroup<8> group, int64_t) {
    const auto lane = size_t(group.lane());
    pairs[lane] = group.reduce_max(kLane[lane], 2);
    fours[lane] = group.reduce_max(kLane[lane], 4);
    all[lane] = group.reduce_max(kLane[lane]);
  });
  const float of_pairs[] = {-3, -3, 7, 7, -2, -2, 4, 4}, of_fours[] = {7, 7, 7, 7, 4, 4, 4, 4};
  for (size_t lane = 0; lane < 8; ++lane) {
    EXPECT_EQ(pairs[lane], of_pairs[lane]) << lane;
    EXPECT_EQ(fours[lane], of_fours[lane]) << lane;
    EXPECT_EQ(all[lane], 7.0f) << lane;
  }
}

}  // namespace
}  // namespace mpt
