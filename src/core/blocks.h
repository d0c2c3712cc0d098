// Update blocks: how a tensor's logical elements are cut into blocks of up to kUpdateBlock, a block into the
// parts of a group's lanes, and which memory a range of blocks is. Shapes only.
#pragma once

#include <cstdint>

#include "core/group.h"
#include "core/tensor.h"

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

// --- ranges of blocks ------------------------------------------------------------------------------------

// Consecutive update blocks of a tensor: what one rank updates, saves and sends. Blocks go row by row, so a
// range is one span of memory (padding between rows included) and one span of the packed elements.
struct BlockRange {
  int64_t first = 0, count = 0;

  [[nodiscard]] int64_t end() const { return first + count; }
  [[nodiscard]] bool empty() const { return count == 0; }
  bool operator==(const BlockRange&) const = default;
};

inline BlockRange all_blocks(int64_t rows, int64_t cols) { return {0, BlockGrid{rows, cols}.blocks()}; }

// A span of a tensor's elements as they are packed, row after row without padding.
struct ElementRange {
  int64_t first = 0, count = 0;

  bool operator==(const ElementRange&) const = default;
};

// Of a tensor with `cols` columns of which an update block has `block_cols`: kUpdateBlock for elements, less
// for what several share.
struct BlockColumns {
  int64_t cols, block_cols = kUpdateBlock;
};
// The elements of `range` in a tensor of `columns`, whose update blocks are those of `grid`.
ElementRange elements_of(const BlockGrid& grid, BlockRange range, BlockColumns columns);

// The memory of t from the first element of the range to its last, as [1, n]; no elements: an empty view.
Tensor span_of(const Tensor& t, const BlockGrid& grid, BlockRange range, int64_t block_cols = kUpdateBlock);

// A view as of a whole tensor [rows, cols] with that stride, of which only the range's elements are there:
// `span` holds them as span_of() would give them. Nothing else of it may be touched.
Tensor whole_of_span(const Tensor& span, const Tensor& shape, BlockRange range);

}  // namespace mpt
