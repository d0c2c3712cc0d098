// Update blocks: how a tensor's logical elements are divided into blocks of up to kUpdateBlock
// elements, how a block is divided among the lanes of a group, and which memory a range of blocks
// occupies. Shapes only.
#pragma once

#include <cstdint>

#include "core/group.h"
#include "core/tensor.h"

namespace mpt {

// Position of an update block in its tensor: `count` <= kUpdateBlock elements of one row. `col` is
// a multiple of kUpdateBlock.
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
  // Elements of update blocks [first, end), first < end, with the tensor flattened to a single row.
  [[nodiscard]] BlockSpan flat(int64_t first, int64_t end) const {
    const BlockSpan begin = span(first), last = span(end - 1);
    const int64_t from = begin.row * cols + begin.col;
    return {0, from, last.row * cols + last.col + last.count - from};
  }
};

// The part of an update block owned by this lane of group G.
template <class G>
struct LanePart {
  static constexpr int kSize = kUpdateBlock / G::kLanes;
  int64_t col;  // first element
  int size;     // 0..kSize

  MPT_HD LanePart(G group, BlockSpan span) {
    const int64_t begin = group.lane() * kSize;
    col = span.col + begin;
    size = static_cast<int>(clamp_to<int64_t>(span.count - begin, 0, kSize));
  }
};

}  // namespace mpt
