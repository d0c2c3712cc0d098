// Row vectors against the scalar formulas they replace.
#include "device/cpu/row_vector.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace mpt {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Several vectors of different numbers, so that no lane can replace another.
struct Lanes {
  static constexpr int kCount = 3 * kTileLanes;
  RowVectors<3> vectors{0.0f};
  [[nodiscard]] float at(int i) const { return vectors.part[i / kTileLanes][i % kTileLanes]; }
  void set(int i, float x) { vectors.part[i / kTileLanes][i % kTileLanes] = x; }
};

// Separately and together.
void expect_exponentials(const Lanes& x) {
  const Lanes e{softmax_exp(x.vectors)};
  for (int i = 0; i < Lanes::kCount; ++i) {
    const float one = x.at(i), expected = exp_of(one), found = e.at(i);
    if (std::isnan(one)) {
      ASSERT_TRUE(std::isnan(found) && std::isnan(softmax_exp(one))) << std::hex << bits_of(one);
    } else {
      ASSERT_EQ(bits_of(found), bits_of(expected)) << one;
      ASSERT_EQ(bits_of(softmax_exp(one)), bits_of(expected)) << one;
    }
  }
}

// Every 97th float up to 40, infinities and NaNs among them.
TEST(RowVector, ExponentialsAreThoseOfScalarsToTheBit) {
  if (!kTileFuses) GTEST_SKIP() << "no fused multiply-add";
  Lanes x;
  int lane = 0;
  for (uint64_t bits = 0; bits <= 0xFFFFFFFFu; bits += 97) {
    const float value = float_of(uint32_t(bits));
    if (value > 40) continue;
    x.set(lane, value);
    lane = (lane + 1) % Lanes::kCount;
    if (lane == 0) {
      ASSERT_NO_FATAL_FAILURE(expect_exponentials(x));
    }
  }
}

TEST(RowVector, ExponentialsAtTheEdges) {
  const float inf = std::numeric_limits<float>::infinity();
  Lanes x;
  for (int i = 0; const float value : {0.0f, -0.0f, 40.0f, -103.9f, -104.0f, -inf, kNan, -kNan})
    x.set(i++, value);
  const Lanes e{softmax_exp(x.vectors)};
  EXPECT_EQ(e.at(0), 1.0f);
  EXPECT_EQ(e.at(1), 1.0f);
  EXPECT_NEAR(e.at(2), std::exp(40.0), std::exp(40.0) * 0x1p-22);
  EXPECT_EQ(e.at(3), float_of(1));  // the smallest subnormal
  EXPECT_EQ(bits_of(e.at(4)), 0u);
  EXPECT_EQ(bits_of(e.at(5)), 0u);
  EXPECT_TRUE(std::isnan(e.at(6)));
  EXPECT_TRUE(std::isnan(e.at(7)));
}

// The order of a sum determines its bits: first over those 8 apart, for any vector width.
TEST(RowVector, FoldsByHalves) {
  float x[kTileColumns];
  for (int i = 0; i < kTileColumns; ++i) x[i] = 1.0f / float(i + 3);
  RowVector parts[kTileColumns / kTileLanes];
  for (int i = 0; i < kTileColumns; ++i) parts[i / kTileLanes][i % kTileLanes] = x[i];
  for (int distance = 8; distance >= 1; distance /= 2)
    for (int i = 0; i < distance; ++i) x[i] += x[i + distance];
  EXPECT_EQ(folded(parts, sum), x[0]);
}

TEST(RowVector, FoldsEveryLaneOnce) {
  for (int i = 0; i < kTileColumns; ++i) {
    RowVector parts[kTileColumns / kTileLanes] = {};
    parts[i / kTileLanes][i % kTileLanes] = 3;
    EXPECT_EQ(folded(parts, larger), 3.0f);
  }
}

// Like max_of(): the second argument if the first is a NaN.
TEST(RowVector, LargerOfNans) {
  const RowVector one = larger(RowVector{} + 1.0f, RowVector{} + kNan),
                  other = larger(RowVector{} + kNan, RowVector{});
  EXPECT_TRUE(std::isnan(one[0]));
  EXPECT_EQ(other[0], 0.0f);
}

}  // namespace
}  // namespace mpt
