// Consecutive update blocks of a tensor: the part of it that a rank updates, saves and sends.
//
// Update blocks go row by row, so a range is one stretch of memory (padding between rows included) and one
// stretch of the packed elements; and so are the scales that belong to it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "precision/encoded_tensor.h"
#include "precision/unit.h"

namespace mpt {

struct BlockRange {
  int64_t first = 0, count = 0;

  [[nodiscard]] int64_t end() const { return first + count; }
  [[nodiscard]] bool empty() const { return count == 0; }
  bool operator==(const BlockRange&) const = default;
};

inline BlockRange all_blocks(int64_t rows, int64_t cols) { return {0, BlockGrid{rows, cols}.blocks()}; }

// A stretch of a tensor's elements as they are packed, row after row without padding.
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

// The same of every piece that the range's elements are encoded in. A tensor's scale belongs to no range.
std::vector<Tensor> spans_of(const EncodedTensor& tensor, BlockRange range);

// What `range` is of every piece of EncodedTensor::pieces(): codes and block scales of its elements, and the
// tensor's scale with the first update block. Ranges that cover a tensor once have every element of every
// piece once.
std::vector<TensorPart> parts_of(const EncodedTensor& tensor, const std::string& name, BlockRange range);

// A view as of a whole tensor [rows, cols] with that stride, of which only the range's elements are there:
// `span` holds them as span_of() would give them. Nothing else of it may be touched.
Tensor whole_of_span(const Tensor& span, const Tensor& shape, BlockRange range);

}  // namespace mpt
