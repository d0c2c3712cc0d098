// Element-wise codecs: every lane reads and writes its part and nothing else; formats and their element
// types.
#include "precision/codec.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "precision/dispatch.h"
#include "precision/format.h"
#include "support/lockstep_group.h"

namespace mpt {
namespace {

constexpr int64_t kCounts[] = {0, 1, 3, 4, 5, 31, 32, 33, 127, 128};
constexpr float kGuard = -7.0f;

template <class T>
std::vector<T> guarded() {
  return std::vector<T>(3 * kUnit, from_float<T>(kGuard));
}

// Loads a unit of x[i] = i + 0.5 and stores 2 x; with any group.
template <class T, class Group>
void expect_part(Group group, int64_t count) {
  std::vector<T> data = guarded<T>();
  for (int64_t i = 0; i < count; ++i) data[size_t(kUnit + i)] = from_float<T>(float(i) + 0.5f);
  const ElementCodec<T> codec{data.data()};
  const UnitSpan unit{.offset = kUnit, .count = count};
  const LanePart<Group> part(group, unit);
  float x[LanePart<Group>::kSize];
  std::fill_n(x, LanePart<Group>::kSize, NAN);
  codec.load(group, unit, x);
  for (int k = 0; k < part.kSize; ++k) {
    const auto i = float(group.lane() * part.kSize + k);
    ASSERT_EQ(x[k], k < part.size ? i + 0.5f : 0.0f) << "count " << count << " lane " << group.lane();
    x[k] = 2 * x[k] + (k < part.size ? 0.0f : 99.0f);
  }
  codec.store(group, unit, x);
  for (int64_t i = 0; i < 3 * kUnit; ++i) {
    const int64_t in_unit = i - kUnit;
    const bool mine = i >= part.first && i < part.first + part.size;
    const bool inside = in_unit >= 0 && in_unit < count;
    const float value = inside ? (float(in_unit) + 0.5f) * (mine ? 2 : 1) : kGuard;
    ASSERT_EQ(to_float(data[size_t(i)]), value) << "element " << in_unit << " of " << count;
  }
}

template <class T>
void expect_every_group() {
  for (const int64_t count : kCounts) {
    expect_part<T>(SerialGroup{}, count);
    test::LockstepTeam<4> four;
    for (int64_t lane = 0; lane < 4; ++lane) expect_part<T>(test::LockstepGroup<4>(four, lane), count);
    test::LockstepTeam<32> warp;
    for (int64_t lane = 0; lane < 32; ++lane) expect_part<T>(test::LockstepGroup<32>(warp, lane), count);
  }
}

TEST(ElementCodec, EveryLaneOwnsItsPartInFp32) { expect_every_group<float>(); }
TEST(ElementCodec, EveryLaneOwnsItsPartInBf16) { expect_every_group<bf16>(); }

TEST(ElementCodec, StoresNearest) {
  std::vector<bf16> data(1);
  const float x[kUnit] = {float_of(0x3F808001u)};
  ElementCodec<bf16>{data.data()}.store(SerialGroup{}, {0, 1}, x);
  EXPECT_EQ(data[0].bits, 0x3F81);
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
