// Update blocks: how a tensor's logical elements are divided into blocks of up to kUpdateBlock
// elements and a block among the lanes of a group, and which memory a range of blocks occupies.
// Shapes only.
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
  // The elements of update blocks [first, end), first < end, with the tensor flattened to a single
  // row.
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

// --- ranges of blocks ----------------------------------------------------------------------------

// Consecutive update blocks of a tensor: what one rank updates, saves and sends. Blocks go row by
// row, so a range is one span of memory (padding between rows included) and one span of the packed
// elements.
struct BlockRange {
  int64_t first = 0, count = 0;

  [[nodiscard]] int64_t end() const { return first + count; }
  [[nodiscard]] bool empty() const { return count == 0; }
  bool operator==(const BlockRange&) const = default;
};

inline BlockRange all_blocks(int64_t rows, int64_t cols) {
  return {0, BlockGrid{rows, cols}.blocks()};
}

// A range of a tensor's elements in packed order: row after row without padding.
struct ElementRange {
  int64_t first = 0, count = 0;

  bool operator==(const ElementRange&) const = default;
};

// Columns per row and per update block. block_cols is kUpdateBlock for elements and less for data
// shared by several elements, such as scales.
struct BlockColumns {
  int64_t cols, block_cols = kUpdateBlock;
};
// The packed elements of `range` in a tensor with these columns, whose update blocks are those of
// `grid`.
ElementRange elements_of(const BlockGrid& grid, BlockRange range, BlockColumns columns);

// The memory of t from the first element of the range to its last, as [1, n]. An empty range gives
// an empty view.
Tensor span_of(const Tensor& t, const BlockGrid& grid, BlockRange range,
               int64_t block_cols = kUpdateBlock);

// A view with the rows, columns and stride of `shape`, of which only the elements of `range` exist;
// `span` holds them, as returned by span_of(). Accessing any other element is undefined.
Tensor whole_of_span(const Tensor& span, const Tensor& shape, BlockRange range);

}  // namespace mpt
