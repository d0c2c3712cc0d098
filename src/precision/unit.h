// How a tensor's logical elements are cut into update blocks, and an update block into the parts of a group's
// lanes.
#pragma once

#include "core/group.h"

namespace mpt {

// An update block's place in its tensor: `count` <= kUpdateBlock elements of a row, from a multiple of
// kUpdateBlock on.
struct BlockSpan {
  int64_t row;
  int64_t col;
  int64_t count;
};

struct BlockGrid {
  int64_t rows, cols;

  [[nodiscard]] MPT_HD int64_t per_row() const { return (cols + kUpdateBlock - 1) / kUpdateBlock; }
  [[nodiscard]] MPT_HD int64_t blocks() const { return rows * per_row(); }
  [[nodiscard]] MPT_HD BlockSpan span(int64_t block) const {
    const int64_t first = block % per_row() * kUpdateBlock;
    return {block / per_row(), first, min_of<int64_t>(kUpdateBlock, cols - first)};
  }
  // The elements of update blocks [first, end), of at least one, as those of a single row of all.
  [[nodiscard]] BlockSpan flat(int64_t first, int64_t end) const {
    const BlockSpan begin = span(first), last = span(end - 1);
    const int64_t from = begin.row * cols + begin.col;
    return {0, from, last.row * cols + last.col + last.count - from};
  }
};

// The part of an update block that a lane of group G owns.
template <class G>
struct LanePart {
  static constexpr int kSize = kUpdateBlock / G::kLanes;
  int64_t col;  // of its first element
  int size;     // 0..kSize

  MPT_HD LanePart(G group, BlockSpan span) {
    const int64_t begin = group.lane() * kSize;
    col = span.col + begin;
    size = static_cast<int>(clamp_to<int64_t>(span.count - begin, 0, kSize));
  }
};

}  // namespace mpt
