// BF16: all 65536 codes, golden roundings, and nearest-even against FP64 arithmetic.
#include "core/bf16.h"

#include <cmath>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "core/json/json_parse.h"

namespace mpt {
namespace {

uint32_t hex(const Json& text) {
  return uint32_t(std::stoul(text.get<std::string>(), nullptr, 16));
}

TEST(Bf16, EveryCodeSurvivesARoundTrip) {
  for (uint32_t code = 0; code <= 0xFFFF; ++code) {
    const float x = to_float(bf16{uint16_t(code)});
    ASSERT_EQ(bits_of(x), code << 16);
    ASSERT_EQ(bf16_nearest(x).bits, std::isnan(x) ? 0x7FFFu : code);
    if (!std::isnan(x)) {
      ASSERT_EQ(bits_of(rounded_to<bf16>(x)), bits_of(x));
    }
  }
}

TEST(Bf16, GoldenRoundings) {
  std::ifstream file(MPT_SOURCE_DIR "/tests/golden/numerics_golden.json");
  const Json cases = Json::parse(file)["bf16_nearest"];
  ASSERT_GE(cases.size(), 22u);
  for (const Json& known : cases)
    EXPECT_EQ(bf16_nearest(float_of(hex(known["x"]))).bits, hex(known["bf16"])) << known;
}

// The nearer of the two neighbors; between two equally near ones, the even one. Between all
// adjacent codes: just above the lower, around the middle, just below the upper.
TEST(Bf16, NearestOfTheNeighbours) {
  for (uint32_t code = 0; code < 0x7F7F; ++code) {
    const uint32_t low = code << 16;
    for (const uint32_t rest : {0x0001u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      const double x = float_of(low + rest), below = float_of(low),
                   above = float_of(low + 0x10000u);
      const bool tie = x - below == above - x;
      const bool up = tie ? (code & 1) != 0 : above - x < x - below;
      ASSERT_EQ(bf16_nearest(float_of(low + rest)).bits, code + up) << code << " " << rest;
      ASSERT_EQ(bf16_nearest(-float_of(low + rest)).bits, (code + up) | 0x8000u)
          << code << " " << rest;
    }
  }
}

// --- stochastic rounding: r is the upper half of the word ----------------------------------------

uint32_t stochastic(uint32_t x, uint32_t r) {
  return bf16_stochastic(float_of(x), r << 16 | 0xFFFFu).bits;
}

TEST(Bf16, StochasticGolden) {
  constexpr uint32_t kR[] = {0, 0x7FFF, 0x8000, 0xFFFF};
  const struct {
    uint32_t x, code[4];
  } cases[] = {{0x3F808000u, {0x3F80, 0x3F80, 0x3F81, 0x3F81}},
               {0x3FFFFFFFu, {0x3FFF, 0x4000, 0x4000, 0x4000}},
               {0x80008000u, {0x8000, 0x8000, 0x8001, 0x8001}},
               {0x0000FFFFu, {0x0000, 0x0001, 0x0001, 0x0001}},
               {0x7F800001u, {0x7FFF, 0x7FFF, 0x7FFF, 0x7FFF}}};
  for (const auto& known : cases)
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(stochastic(known.x, kR[i]), known.code[i]) << known.x << " " << i;
}

// The mean over all 2^16 draws is x, in FP64, and every draw is a neighbor.
TEST(Bf16, StochasticIsUnbiased) {
  for (const float x :
       {1.0f, 1.001f, -3.14159f, 1e-3f, 1e-39f, -1.4e-45f, 3e38f, float_of(0x3F80FFFFu)}) {
    const uint32_t low = bits_of(x) >> 16;
    int64_t away = 0;
    for (uint32_t r = 0; r <= 0xFFFF; ++r) {
      const uint32_t code = stochastic(bits_of(x), r);
      ASSERT_TRUE(code == low || code == low + 1) << x << " " << r;
      away += code == low + 1;
    }
    const double lower = float_of(low << 16), upper = float_of((low + 1) << 16);
    EXPECT_EQ(lower + (upper - lower) * (double(away) / 0x10000), double(x));
  }
}

TEST(Bf16, StochasticCarryBeyondTheLargest) {
  const auto saturating = [](uint32_t x, uint32_t r) {
    return bf16_stochastic_saturating(float_of(x), r << 16).bits;
  };
  for (const uint32_t sign : {0u, 0x8000u}) {
    const uint32_t most = (sign << 16) | 0x7F7FFFFFu, infinite = (sign << 16) | 0x7F800000u;
    EXPECT_EQ(stochastic(most, 0), sign | 0x7F7F);
    EXPECT_EQ(stochastic(most, 1), sign | 0x7F80);
    EXPECT_EQ(saturating(most, 0), sign | 0x7F7F);
    EXPECT_EQ(saturating(most, 1), sign | 0x7F7F);
    EXPECT_EQ(saturating(most, 0xFFFF), sign | 0x7F7F);
    EXPECT_EQ(saturating(infinite, 0xFFFF), sign | 0x7F80) << "infinity stays";
    EXPECT_EQ(saturating(infinite + 1, 0xFFFF), 0x7FFFu);
  }
  EXPECT_EQ(saturating(0x3F808000u, 0x8000), 0x3F81u) << "anything else as without saturation";
}

TEST(Bf16, Float32IsLeftAsItIs) {
  EXPECT_EQ(from_float<float>(1.0000001f), 1.0000001f);
  EXPECT_EQ(to_float(1.0000001f), 1.0000001f);
  EXPECT_EQ(rounded_to<float>(1.0000001f), 1.0000001f);
  EXPECT_EQ(rounded_to<bf16>(1.0000001f), 1.0f);
}

}  // namespace
}  // namespace mpt
