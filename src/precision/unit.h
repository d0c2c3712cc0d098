// How a tensor's logical elements are cut into units, and a unit into the parts of a group's lanes.
#pragma once

#include "core/group.h"

namespace mpt {

// A unit's place in its tensor: `count` <= kUnit elements of a row, from a multiple of kUnit on.
struct UnitSpan {
  int64_t row;
  int64_t col;
  int64_t count;
};

struct UnitGrid {
  int64_t rows, cols;

  [[nodiscard]] MPT_HD int64_t per_row() const { return (cols + kUnit - 1) / kUnit; }
  [[nodiscard]] MPT_HD int64_t units() const { return rows * per_row(); }
  [[nodiscard]] MPT_HD UnitSpan span(int64_t unit) const {
    const int64_t first = unit % per_row() * kUnit;
    return {unit / per_row(), first, min_of<int64_t>(kUnit, cols - first)};
  }
  // The elements of units [first, end), of at least one, as those of a single row of all.
  [[nodiscard]] UnitSpan flat(int64_t first, int64_t end) const {
    const UnitSpan begin = span(first), last = span(end - 1);
    const int64_t from = begin.row * cols + begin.col;
    return {0, from, last.row * cols + last.col + last.count - from};
  }
};

// The part of a unit that a lane of group G owns.
template <class G>
struct LanePart {
  static constexpr int kSize = kUnit / G::kLanes;
  int64_t col;  // of its first element
  int size;     // 0..kSize

  MPT_HD LanePart(G group, UnitSpan unit) {
    const int64_t begin = group.lane() * kSize;
    col = unit.col + begin;
    size = static_cast<int>(clamp_to<int64_t>(unit.count - begin, 0, kSize));
  }
};

}  // namespace mpt
