// Normal draws: golden values, the statistics of many, independence from the number requested.
#include "core/normal.h"

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/json/json_parse.h"
#include "core/random.h"
#include "core/scalar_math.h"

namespace mpt {
namespace {

Json golden() {
  std::ifstream file(MPT_SOURCE_DIR "/tests/golden/numerics_golden.json");
  return Json::parse(file)["init"];
}

uint32_t hex_bits(const Json& text) {
  return uint32_t(std::stoul(text.get<std::string>(), nullptr, 16));
}

RandomCounter counter_of(const Json& init) {
  return {.seed = init["seed"],
          .tensor = init["tensor"],
          .row = init["row"],
          .step = 0,
          .stream = RandomStream{0}};
}

TEST(Normal, GoldenWordsAndNormals) {
  const Json init = golden();
  const RandomCounter counter = counter_of(init);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(counter.word(i), hex_bits(init["words"][i]));
  for (uint32_t i = 0; i < 8; ++i)  // the cosine of different libraries may differ in the last bits
    EXPECT_NEAR(normals_of(counter.block(i / 4))[i % 4], init["normals"][i].get<double>(), 1e-14);
}

TEST(Normal, GoldenInitialValues) {
  const Json init = golden();
  std::vector<float> values(init["values"].size());
  fill_normals(counter_of(init), init["std"], std::ssize(values), values.data());
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(bits_of(values[i]), hex_bits(init["values"][i])) << i;
}

// The first n of a row are the same for any n, and nothing is written after them.
TEST(Normal, AnyCountIsAPrefix) {
  const RandomCounter counter{7, 1, 2, 3, RandomStream{0}};
  std::vector<float> whole(40);
  fill_normals(counter, 1.0, 40, whole.data());
  for (const size_t count : {0, 1, 2, 3, 4, 5, 39}) {
    std::vector<float> part(41, 99.0f);
    fill_normals(counter, 1.0, int64_t(count), part.data());
    for (size_t i = 0; i < part.size(); ++i) EXPECT_EQ(part[i], i < count ? whole[i] : 99.0f);
  }
}

TEST(Normal, ExtremeWordsAreFinite) {
  for (const uint32_t a : {0u, 1u, 0x7FFFFFFFu, 0xFFFFFFFFu})
    for (const uint32_t b : {0u, 1u, 0x80000000u, 0xFFFFFFFFu})
      for (const double z : normals_of({{a, b, b, a}})) {
        EXPECT_TRUE(std::isfinite(z));
        EXPECT_LE(std::fabs(z), std::sqrt(-2 * std::log(0x1p-32)));
      }
  EXPECT_EQ(normals_of({{0xFFFFFFFFu, 0, 0xFFFFFFFFu, 0}})[0], 0.0) << "u1 = 1";
}

// Mean, variance, kurtosis and lag-1 correlation of n draws are within five of their standard
// errors.
TEST(Normal, Statistics) {
  constexpr int64_t kDraws = 400000;
  std::vector<float> z(kDraws);
  fill_normals({42, 0, 0, 0, RandomStream{0}}, 1.0, kDraws, z.data());
  double sum = 0, square = 0, fourth = 0, lagged = 0;
  for (size_t i = 0; i < z.size(); ++i) {
    sum += z[i];
    square += double(z[i]) * z[i];
    fourth += std::pow(double(z[i]), 4);
    if (i > 0) lagged += double(z[i]) * z[i - 1];
  }
  const double n = kDraws, error = 5 / std::sqrt(n);
  EXPECT_NEAR(sum / n, 0, error);
  EXPECT_NEAR(square / n, 1, std::sqrt(2) * error);
  EXPECT_NEAR(fourth / n, 3, std::sqrt(96) * error);
  EXPECT_NEAR(lagged / n, 0, error);
}

}  // namespace
}  // namespace mpt
