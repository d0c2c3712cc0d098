// Element-wise codecs: every lane reads and writes only its part; roundings and their random words;
// formats and their element types.
#include "precision/codec.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "precision/dispatch.h"
#include "precision/format.h"
#include "support/host_matrix.h"
#include "support/lockstep_group.h"

namespace mpt {
namespace {

using test::HostMatrix;

constexpr int64_t kCounts[] = {0, 1, 3, 4, 5, 31, 32, 33, 127, 128, 255, 256};
constexpr BlockSpan at_span(int64_t count) {
  return {.row = 1, .col = kUpdateBlock, .count = count};
}

template <class G>
Dither<LanePart<G>::kSize> nearest(G group) {
  return DitherSource{}.draw(group, at_span(kUpdateBlock));
}

// Loads the second update block of the second row of x[i] = i + 1 and stores 2 x, with any group.
template <class Group>
void expect_part(DType dtype, Group group, int64_t count) {
  HostMatrix data(dtype, {.rows = 3, .cols = kUpdateBlock + count, .padding = kUpdateBlock});
  data.fill([](int64_t r, int64_t c) {
    return r == 1 && c >= kUpdateBlock ? float(c - kUpdateBlock + 1) : -7.0f;
  });
  const ElementCodec codec(data.view());
  const LanePart<Group> part(group, at_span(count));
  float x[LanePart<Group>::kSize];
  std::fill_n(x, LanePart<Group>::kSize, NAN);
  codec.load(group, at_span(count), x);
  for (int k = 0; k < part.kSize; ++k) {
    const auto i = float(group.lane() * part.kSize + k);
    ASSERT_EQ(x[k], k < part.size ? i + 1 : 0.0f) << "count " << count << " lane " << group.lane();
    x[k] = 2 * x[k] + (k < part.size ? 0.0f : 99.0f);
  }
  codec.store(group, at_span(count), x, nearest(group));
  ASSERT_TRUE(data.padding_untouched()) << count;
  for (int64_t r = 0; r < 3; ++r)
    for (int64_t c = 0; c < kUpdateBlock + count; ++c) {
      const bool inside = r == 1 && c >= kUpdateBlock;
      const bool mine = inside && c >= part.col && c < part.col + part.size;
      const float value = inside ? float(c - kUpdateBlock + 1) * (mine ? 2 : 1) : -7.0f;
      ASSERT_EQ(data.at(r, c), value)
          << "row " << r << " column " << c << " of " << kUpdateBlock + count;
    }
}

void expect_every_group(DType dtype) {
  for (const int64_t count : kCounts) {
    expect_part(dtype, SerialGroup{}, count);
    test::LockstepTeam<4> four;
    for (int64_t lane = 0; lane < 4; ++lane)
      expect_part(dtype, test::LockstepGroup<4>(four, lane), count);
    test::LockstepTeam<32> warp;
    for (int64_t lane = 0; lane < 32; ++lane)
      expect_part(dtype, test::LockstepGroup<32>(warp, lane), count);
  }
}

TEST(ElementCodec, EveryLaneOwnsItsPartInFp32) { expect_every_group(DType::kF32); }
TEST(ElementCodec, EveryLaneOwnsItsPartInBf16) { expect_every_group(DType::kBF16); }

// Store and round, of one element, with one word.
void expect_rounding(const Dither<kUpdateBlock>& dither, uint32_t x, uint32_t bf16_bits) {
  HostMatrix data(DType::kBF16, {1, 1});
  const ElementCodec codec(data.view());
  float value[kUpdateBlock] = {float_of(x)};
  codec.store(SerialGroup{}, {0, 0, 1}, value, dither);
  EXPECT_EQ(data.bits(0, 0), bf16_bits);
  codec.round(SerialGroup{}, {0, 0, 1}, value, dither);
  EXPECT_EQ(bits_of(value[0]), bf16_bits << 16);
}

TEST(ElementCodec, RoundsAsTheDitherSays) {
  Dither<kUpdateBlock> dither = nearest(SerialGroup{});
  expect_rounding(dither, 0x3F808001u, 0x3F81);
  dither.rounding = Rounding::kStochastic;
  for (uint32_t& word : dither.word) word = 0x7FFEFFFFu;
  expect_rounding(dither, 0x3F808001u, 0x3F80);
  for (uint32_t& word : dither.word) word = 0x7FFF0000u;
  expect_rounding(dither, 0x3F808001u, 0x3F81);
  expect_rounding(dither, 0x7F7FFFFFu, 0x7F80);
  dither.carry = Carry::kSaturates;
  expect_rounding(dither, 0x7F7FFFFFu, 0x7F7F);
}

TEST(ElementCodec, Fp32IsStoredAsItIs) {
  HostMatrix data(DType::kF32, {1, 1});
  const ElementCodec codec(data.view());
  Dither<kUpdateBlock> dither = nearest(SerialGroup{});
  dither.rounding = Rounding::kStochastic;
  std::fill_n(dither.word, kUpdateBlock, 0xFFFFFFFFu);
  float x[kUpdateBlock] = {1.0000001f};
  codec.round(SerialGroup{}, {0, 0, 1}, x, dither);
  codec.store(SerialGroup{}, {0, 0, 1}, x, dither);
  EXPECT_EQ(data.at(0, 0), 1.0000001f);
}

TEST(ElementCodec, RefusesScaledTypes) {
  HostMatrix data(DType::kE4M3, {1, 1});
  EXPECT_THROW(ElementCodec{data.view()}, LogicError);
}

// The published counter layout: each element's word, whichever lane draws it.
template <class Group>
void expect_words(Group group) {
  const DitherSource source{.rounding = Rounding::kStochastic,
                            .seed = 0x0123456789ABCDEF,
                            .tensor = 218,
                            .step = 99999,
                            .stream = kWeightRoundingStream};
  const BlockSpan span{.row = 2047, .col = 5376, .count = 85};
  const auto dither = source.draw(group, span);
  const RandomCounter counter{source.seed, source.tensor, 2047, source.step, source.stream};
  const LanePart<Group> part(group, span);
  for (int k = 0; k < part.kSize; ++k)
    ASSERT_EQ(dither.word[k], counter.word(uint32_t(part.col + k))) << group.lane() << " " << k;
  if (group.lane() == (5460 - span.col) / part.kSize) {
    EXPECT_EQ(dither.word[(5460 - span.col) % part.kSize], 0x94FABD38u);
  }
}
TEST(Dither, AFunctionOfTheElementAlone) {
  expect_words(SerialGroup{});
  test::LockstepTeam<4> four;
  for (int64_t lane = 0; lane < 4; ++lane) expect_words(test::LockstepGroup<4>(four, lane));
  test::LockstepTeam<32> warp;
  for (int64_t lane = 0; lane < 32; ++lane) expect_words(test::LockstepGroup<32>(warp, lane));
}

TEST(Dispatch, FromNamesToTypes) {
  const auto size = [](auto value) { return sizeof value; };
  EXPECT_EQ(dispatch(DType::kF32, size), 4u);
  EXPECT_EQ(dispatch(DType::kBF16, size), 2u);
  EXPECT_TRUE(dispatch(DType::kBF16, []<class T>(T) { return std::is_same_v<T, bf16>; }));
  EXPECT_THROW(dispatch(DType::kI32, size), LogicError);
  EXPECT_THROW(dispatch(DType::kF64, size), LogicError);
}

TEST(Format, NamesAndElementTypesAgree) {
  for (const std::string_view name : EnumNames<Format>::kNames) {
    const DType dtype = dtype_of(*enum_from_name<Format>(name));
    EXPECT_EQ(name_of(dtype), name);
  }
  EXPECT_EQ(size_of(dtype_of(Format::kF32)), 4);
  EXPECT_EQ(size_of(dtype_of(Format::kBF16)), 2);
}

}  // namespace
}  // namespace mpt
