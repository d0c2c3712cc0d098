// The seeded order: a bijection for every n, golden values of an independent implementation, well
// mixed.
#include <cmath>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "core/check.h"
#include "data/shuffle.h"

namespace mpt {
namespace {

std::vector<int64_t> order_of(ShuffleKey key, int64_t n) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < n; ++i) order.push_back(permuted_index(key, n, i));
  return order;
}

TEST(Order, IsABijectionForEveryCount) {
  std::vector<int64_t> counts;
  for (int64_t n = 1; n <= 70; ++n) counts.push_back(n);
  for (int power = 7; power <= 14; ++power)
    for (int64_t delta = -1; delta <= 1; ++delta) counts.push_back((int64_t{1} << power) + delta);
  for (const int64_t n : counts) {
    for (const ShuffleKey key :
         {ShuffleKey{0, 0}, ShuffleKey{42, 7}, ShuffleKey{~uint64_t{0}, 0xFFFFFFFF}}) {
      std::vector<bool> seen(static_cast<size_t>(n));
      for (const int64_t value : order_of(key, n)) {
        ASSERT_TRUE(value >= 0 && value < n) << value << " of " << n;
        ASSERT_FALSE(seen[static_cast<size_t>(value)]) << value << " of " << n << " twice";
        seen[static_cast<size_t>(value)] = true;
      }
    }
  }
}

// From a Python implementation of the equation in sequence_source.h and docs/numerics.md "Data
// order".
TEST(Order, GoldenValues) {
  EXPECT_EQ(order_of({42, 0}, 10), (std::vector<int64_t>{5, 3, 4, 7, 6, 1, 9, 2, 0, 8}));
  EXPECT_EQ(order_of({42, 1}, 10), (std::vector<int64_t>{8, 5, 9, 6, 2, 1, 0, 7, 4, 3}));
  const ShuffleKey key{0x0123456789abcdef, 3};
  const std::vector<int64_t> inputs{0, 1, 2, 500000, 1000002},
      golden{249577, 503508, 183298, 868054, 51292};
  for (size_t i = 0; i < inputs.size(); ++i)
    EXPECT_EQ(permuted_index(key, 1000003, inputs[i]), golden[i]);
  const int64_t large = (int64_t{1} << 40) + 7;
  EXPECT_EQ(permuted_index({7, 100000}, large, 0), 556868886860);
  EXPECT_EQ(permuted_index({7, 100000}, large, 1), 969272582112);
  EXPECT_EQ(permuted_index({7, 100000}, large, large - 1), 405526273890);
}

TEST(Order, SeedsAndEpochsDiffer) {
  std::set<std::vector<int64_t>> orders;
  for (uint64_t seed = 0; seed < 8; ++seed)
    for (int64_t epoch = 0; epoch < 8; ++epoch) orders.insert(order_of({seed, epoch}, 100));
  EXPECT_EQ(orders.size(), 64u);
  EXPECT_NE(order_of({1, 0}, 100), order_of({uint64_t{1} << 32, 0}, 100));
}

// Chi-square of (i's quarter, its image's quarter) over many keys: mean 9 degrees of freedom for a
// uniform order.
TEST(Order, IsWellMixed) {
  constexpr int64_t kCount = 997;
  constexpr int kKeys = 200;
  double chi_square_sum = 0;
  for (uint64_t seed = 0; seed < kKeys; ++seed) {
    std::vector<double> cell(16);
    for (int64_t i = 0; i < kCount; ++i)
      ++cell[static_cast<size_t>(4 * (4 * i / kCount) +
                                 4 * permuted_index({seed, 0}, kCount, i) / kCount)];
    for (const double count : cell)
      chi_square_sum += std::pow(count - kCount / 16.0, 2) / (kCount / 16.0);
  }
  // A permutation fixes the margins; its statistic has mean 9 n/(n-1) and variance near 18 per key.
  EXPECT_NEAR(chi_square_sum / kKeys, 9.0, 5 * std::sqrt(18.0 / kKeys));
}

TEST(Order, EveryPlaceIsTakenByEveryIndexOfATinyEpoch) {
  std::set<std::pair<int64_t, int64_t>> pairs;
  for (int64_t epoch = 0; epoch < 200; ++epoch)
    for (int64_t i = 0; i < 3; ++i) pairs.insert({i, permuted_index({5, epoch}, 3, i)});
  EXPECT_EQ(pairs.size(), 9u);
}

TEST(Order, OutOfRangeIsABug) {
  EXPECT_THROW(permuted_index({0, 0}, 5, 5), LogicError);
  EXPECT_THROW(permuted_index({0, 0}, 5, -1), LogicError);
  EXPECT_THROW(permuted_index({0, 0}, 0, 0), LogicError);
  EXPECT_THROW(permuted_index({0, -1}, 5, 0), LogicError);
  EXPECT_THROW(permuted_index({0, int64_t{1} << 32}, 5, 0), LogicError);
}

}  // namespace
}  // namespace mpt
