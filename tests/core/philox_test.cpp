// Philox words: known answers, the layout of the counter, no two coordinates alike.
#include <fstream>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include <gtest/gtest.h>

#include "core/json/json_parse.h"
#include "core/random.h"

namespace mpt {
namespace {

const Json& philox_golden() {
  static const Json content = [] {
    std::ifstream file(MPT_SOURCE_DIR "/tests/golden/numerics_golden.json");
    return Json::parse(file);
  }();
  return content;
}

uint64_t hex_digits(const Json& text) { return std::stoull(text.get<std::string>(), nullptr, 16); }
uint32_t hex32(const Json& text) { return uint32_t(hex_digits(text)); }

TEST(Philox, KnownAnswers) {
  ASSERT_EQ(philox_golden()["philox"].size(), 3u);
  for (const Json& known : philox_golden()["philox"]) {
    PhiloxBlock counter{};
    for (size_t i = 0; i < 4; ++i) counter.word[i] = hex32(known["counter"][i]);
    const PhiloxBlock out = philox4x32(counter, hex32(known["key"][0]), hex32(known["key"][1]));
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(out.word[i], hex32(known["output"][i])) << known;
  }
}

TEST(Philox, LayoutOfTheCounter) {
  ASSERT_EQ(philox_golden()["words"].size(), 4u);
  for (const Json& known : philox_golden()["words"]) {
    const RandomCounter counter{.seed = hex_digits(known["seed"]),
                                .tensor = known["tensor"],
                                .row = known["row"],
                                .step = known["step"],
                                .stream = RandomStream(known["stream"].get<uint32_t>())};
    EXPECT_EQ(counter.word(known["col"]), hex32(known["word"])) << known;
  }
}

TEST(Philox, AWordIsItsPlaceInItsBlock) {
  const RandomCounter counter{42, 3, 5, 7, kSyntheticStream};
  for (uint32_t column = 0; column < 20; ++column)
    EXPECT_EQ(counter.word(column), counter.block(column / 4).word[column % 4]);
}

// Seeds (both halves), tensors, rows, columns, steps and streams: every change changes the block.
TEST(Philox, EveryCoordinateMatters) {
  std::set<std::pair<uint64_t, uint64_t>> seen;
  int drawn = 0;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32, ~uint64_t{0}})
    for (const uint32_t tensor : {0u, 1u, 218u, 0xFFFFu})
      for (const uint32_t row : {0u, 1u, 2u, 0xFFFFFFFFu})
        for (const uint32_t step : {0u, 1u, 2u, 99999u})
          for (const RandomStream stream : {RandomStream{0}, RandomStream{1}, RandomStream{8}})
            for (const uint32_t block : {0u, 1u, 0x3FFFFFFFu}) {
              const PhiloxBlock b = RandomCounter{seed, tensor, row, step, stream}.block(block);
              seen.insert(
                  {uint64_t{b.word[0]} << 32 | b.word[1], uint64_t{b.word[2]} << 32 | b.word[3]});
              ++drawn;
            }
  EXPECT_EQ(int(seen.size()), drawn);
}

}  // namespace
}  // namespace mpt
