// BF16: all 65536 codes, golden roundings, and nearest-even against FP64 arithmetic.
#include "core/bf16.h"

#include <cmath>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "core/json_parse.h"

namespace mpt {
namespace {

uint32_t hex(const Json& text) { return uint32_t(std::stoul(text.get<std::string>(), nullptr, 16)); }

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

// Of the two neighbours the nearer one; of two equally near the even one. Between all adjacent codes: just
// above the lower, around the middle, just below the upper.
TEST(Bf16, NearestOfTheNeighbours) {
  for (uint32_t code = 0; code < 0x7F7F; ++code) {
    const uint32_t low = code << 16;
    for (const uint32_t rest : {0x0001u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      const double x = float_of(low + rest), below = float_of(low), above = float_of(low + 0x10000u);
      const bool tie = x - below == above - x;
      const bool up = tie ? (code & 1) != 0 : above - x < x - below;
      ASSERT_EQ(bf16_nearest(float_of(low + rest)).bits, code + up) << code << " " << rest;
      ASSERT_EQ(bf16_nearest(-float_of(low + rest)).bits, (code + up) | 0x8000u) << code << " " << rest;
    }
  }
}

TEST(Bf16, Float32IsLeftAsItIs) {
  EXPECT_EQ(from_float<float>(1.0000001f), 1.0000001f);
  EXPECT_EQ(to_float(1.0000001f), 1.0000001f);
  EXPECT_EQ(rounded_to<float>(1.0000001f), 1.0000001f);
  EXPECT_EQ(rounded_to<bf16>(1.0000001f), 1.0f);
}

}  // namespace
}  // namespace mpt
