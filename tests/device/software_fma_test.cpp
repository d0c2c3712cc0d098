// The multiply-add for processors without one, against the C library's.
#include "device/cpu/software_fma.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "core/random.h"

namespace mpt {
namespace {

using Four = float __attribute__((vector_size(16)));

void expect_fused(float a, float b, float c) {
  const Four found = software_fma(Four{a, 1, b, 0}, Four{b, 1, a, 0}, Four{c, 1, c, -0.0f});
  const float expected = std::fma(a, b, c);
  for (const int lane : {0, 2}) {
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(found[lane])) << a << " " << b << " " << c;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(found[lane]), std::bit_cast<uint32_t>(expected))
          << std::hexfloat << a << " " << b << " " << c;
    }
  }
  ASSERT_EQ(found[1], 2.0f);
}

uint32_t random_bits(uint64_t i) { return uint32_t((i * 0x9E3779B97F4A7C15u) >> 32); }

TEST(SoftwareFma, RandomBits) {
  for (uint64_t i = 1; i < 300'000; ++i)
    ASSERT_NO_FATAL_FAILURE(expect_fused(std::bit_cast<float>(random_bits(3 * i)),
                                         std::bit_cast<float>(random_bits(3 * i + 1)),
                                         std::bit_cast<float>(random_bits(3 * i + 2))));
}

// Sums so close to the midpoint of two floats that FP64 gives the midpoint: rounding twice gives
// others.
TEST(SoftwareFma, TiesThatTheRestBreaks) {
  int rounded_twice = 0;
  const auto expect = [&](float a, float b, float c) {
    ASSERT_NO_FATAL_FAILURE(expect_fused(a, b, c));
    rounded_twice += float(double(a) * double(b) + double(c)) != std::fma(a, b, c);
  };
  for (uint32_t i = 0; i < 1000; ++i) {
    const float c = std::bit_cast<float>(0x3F800000u + i), above = 1 + 0x1p-20f,
                below = 1 - 0x1p-20f;
    for (const float sign : {1.0f, -1.0f}) {
      expect(sign * 0x1p-24f * above, below, c);  // 2^-24 (1 - 2^-40) plus 1 + i 2^-23
      expect(sign * 0x1p-24f, 1, c);              // the midpoint itself
      expect(1 + 0x1p-12f, 1 + 0x1p-12f, sign * c * 0x1p-60f);  // 1 + 2^-11 + 2^-24
    }
  }
  EXPECT_GT(rounded_twice, 1000);  // otherwise this test would show nothing
}

TEST(SoftwareFma, Edges) {
  const float inf = std::numeric_limits<float>::infinity(),
              most = std::numeric_limits<float>::max(),
              least = std::numeric_limits<float>::denorm_min();
  const std::vector<float> edges{0.0f, -0.0f, 1.0f,  -1.0f,  inf,       -inf,
                                 most, -most, least, -least, 0x1p-126f, std::nanf("")};
  for (const float a : edges)
    for (const float b : edges)
      for (const float c : edges) ASSERT_NO_FATAL_FAILURE(expect_fused(a, b, c));
}

}  // namespace
}  // namespace mpt
