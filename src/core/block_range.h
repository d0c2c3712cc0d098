// Ranges of update blocks, the unit in which a rank updates, saves and sends.
#pragma once

#include <cstdint>

#include "core/blocks.h"
#include "core/group.h"
#include "core/tensor.h"

namespace mpt {

// Consecutive update blocks of a tensor. Blocks go row by row, so a range is one span of memory
// (padding between rows included) and one span of the packed elements.
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
// Packed elements of `range` in a tensor with these columns, whose update blocks are those of
// `grid`.
ElementRange elements_of(const BlockGrid& grid, BlockRange range, BlockColumns columns);

// Memory of t from the first element of the range to its last, as [1, n]. An empty range gives an
// empty view.
Tensor span_of(const Tensor& t, const BlockGrid& grid, BlockRange range,
               int64_t block_cols = kUpdateBlock);

// View with the rows, columns and stride of `shape`, of which only the elements of `range` exist;
// `span` holds them, as returned by span_of(). Accessing any other element is undefined.
Tensor whole_of_span(const Tensor& span, const Tensor& shape, BlockRange range);

}  // namespace mpt
