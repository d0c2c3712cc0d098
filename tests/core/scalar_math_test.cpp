// The portable exponential against FP64, and minimum, maximum and clamp at their edges.
#include "core/scalar_math.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "core/io/hash.h"

namespace mpt {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLowest = -87.33f, kHighest = 88.72f;  // results are normal numbers between them

// Returns the error in units of the last place of the exact result; 2^-149 if that is subnormal.
double ulps_off(float x) {
  const double exact = std::exp(double(x));
  const float rounded = float(exact);
  const double ulp = double(std::nextafter(rounded, kInfinity)) - double(rounded);
  return std::fabs(double(exp_of(x)) - exact) / ulp;
}

template <class F>
void sweep(const F& f) {
  for (uint64_t bits = 0; bits <= 0xFFFFFFFFu; bits += 1009) f(float_of(uint32_t(bits)));
}

TEST(ExpOf, WithinTwoUlps) {
  double worst = 0;
  sweep([&](float x) {
    if (x >= kLowest && x <= kHighest) worst = std::max(worst, ulps_off(x));
  });
  for (int i = 0; i <= 200000; ++i)
    worst = std::max(worst, ulps_off(kLowest + (kHighest - kLowest) * float(i) / 200000));
  EXPECT_LE(worst, 1.01) << "measured over every 97th number: 1.0031 ulp";
}

TEST(ExpOf, SubnormalResultsWithinOneUlp) {
  for (float x = -87.34f; x > -104.5f; x -= 1.0f / 4096) ASSERT_LE(ulps_off(x), 1.0) << x;
}

TEST(ExpOf, Edges) {
  EXPECT_EQ(exp_of(0.0f), 1.0f);
  EXPECT_EQ(exp_of(-0.0f), 1.0f);
  EXPECT_EQ(exp_of(float_of(1)), 1.0f);
  EXPECT_EQ(exp_of(kInfinity), kInfinity);
  EXPECT_EQ(exp_of(std::numeric_limits<float>::max()), kInfinity);
  EXPECT_EQ(exp_of(88.73f), kInfinity);
  EXPECT_LT(exp_of(kHighest), kInfinity);
  EXPECT_EQ(bits_of(exp_of(-kInfinity)), 0u);
  EXPECT_EQ(bits_of(exp_of(std::numeric_limits<float>::lowest())), 0u);
  EXPECT_EQ(bits_of(exp_of(-104.0f)), 0u);
  EXPECT_EQ(exp_of(-103.9f), float_of(1));
  for (const float nan : {kNan, -kNan, float_of(0x7F800001u), float_of(0xFFFFFFFFu)})
    EXPECT_TRUE(std::isnan(exp_of(nan)));
}

TEST(ExpOf, NeverFallsAsItsArgumentGrows) {
  float before = 0;
  for (float x = -105; x < 89; x += 1.0f / 1024) {
    const float now = exp_of(x);
    ASSERT_GE(now, before) << x;
    before = now;
  }
}

// The same bits with and without vector instructions, fused hardware or another compiler.
TEST(ExpOf, BitsArePartOfEveryRun) {
  std::vector<float> results;
  sweep([&](float x) {
    if (!std::isnan(x)) results.push_back(exp_of(x));
  });
  EXPECT_EQ(hash_bytes(std::as_bytes(std::span(results))), "079b1539504651f4d28f9dd3ee52401a");
}

TEST(ExpOf, LoopsGiveTheBitsOfSingleCalls) {
  std::vector<float> x(1003), y(1003);
  for (size_t i = 0; i < x.size(); ++i) x[i] = -110 + 0.2f * float(i);
#pragma omp simd
  for (size_t i = 0; i < x.size(); ++i) y[i] = exp_of(x[i]);
  for (size_t i = 0; i < x.size(); ++i) {
    volatile float alone = x[i];
    EXPECT_EQ(bits_of(y[i]), bits_of(exp_of(float(alone))));
  }
}

TEST(ExpOf, OtherTypesUseTheLibrary) {
  EXPECT_EQ(exp_of(1.5), std::exp(1.5));
  EXPECT_EQ(exp_of(std::complex<double>(1, 2)), std::exp(std::complex<double>(1, 2)));
}

TEST(MinMax, OrdinaryValues) {
  EXPECT_EQ(max_of(1.0f, 2.0f), 2.0f);
  EXPECT_EQ(max_of(2.0f, 1.0f), 2.0f);
  EXPECT_EQ(min_of(1.0f, 2.0f), 1.0f);
  EXPECT_EQ(min_of(2.0f, 1.0f), 1.0f);
  EXPECT_EQ(max_of<int64_t>(int64_t{1} << 40, 3), int64_t{1} << 40);
}

TEST(MinMax, FirstArgumentNotANumberGivesTheSecond) {
  EXPECT_EQ(max_of(kNan, 2.0f), 2.0f);
  EXPECT_EQ(min_of(kNan, 2.0f), 2.0f);
  EXPECT_TRUE(std::isnan(max_of(2.0f, kNan)));
  EXPECT_TRUE(std::isnan(min_of(2.0f, kNan)));
}

TEST(Clamp, Edges) {
  EXPECT_EQ(clamp_to(0.5f, -1.0f, 1.0f), 0.5f);
  EXPECT_EQ(clamp_to(-3.0f, -1.0f, 1.0f), -1.0f);
  EXPECT_EQ(clamp_to(3.0f, -1.0f, 1.0f), 1.0f);
  EXPECT_EQ(clamp_to(kNan, -1.0f, 1.0f), -1.0f);
  EXPECT_EQ(clamp_to(kInfinity, -1.0f, 1.0f), 1.0f);
  EXPECT_EQ(clamp_to(-kInfinity, -1.0f, 1.0f), -1.0f);
}

// Infinite bounds disable an option: nothing changes, not even the sign of zero.
TEST(Clamp, InfiniteBoundsAreIdentity) {
  sweep([](float x) {
    if (!std::isnan(x)) {
      ASSERT_EQ(bits_of(clamp_to(x, -kInfinity, kInfinity)), bits_of(x));
    }
  });
}

TEST(BitCasts, RoundTrip) {
  sweep([](float x) { ASSERT_EQ(bits_of(float_of(bits_of(x))), bits_of(x)); });
  EXPECT_EQ(bits_of(1.0f), 0x3F800000u);
}

}  // namespace
}  // namespace mpt
