#include "core/block_range.h"

#include <algorithm>

#include "core/block_range.h"
#include "core/check.h"

namespace mpt {
namespace {

// Start and end of an update block, as element offsets from the start of the tensor.
int64_t begin_of(int64_t block, const BlockGrid& grid, int64_t stride, int64_t block_cols) {
  return block / grid.per_row() * stride + block % grid.per_row() * block_cols;
}
int64_t end_of(int64_t block, const BlockGrid& grid, int64_t stride, BlockColumns columns) {
  const int64_t in_row = block % grid.per_row();
  return block / grid.per_row() * stride +
         std::min((in_row + 1) * columns.block_cols, columns.cols);
}

void check_range(const BlockGrid& grid, BlockRange range) {
  check(range.first >= 0 && range.count >= 0 && range.end() <= grid.blocks(),
        "blocks [{}, +{}) are outside a tensor [{},{}]", range.first, range.count, grid.rows,
        grid.cols);
}

}  // namespace

ElementRange elements_of(const BlockGrid& grid, BlockRange range, BlockColumns columns) {
  check_range(grid, range);
  if (range.empty()) return {};
  const int64_t begin = begin_of(range.first, grid, columns.cols, columns.block_cols);
  return {begin, end_of(range.end() - 1, grid, columns.cols, columns) - begin};
}

Tensor span_of(const Tensor& t, const BlockGrid& grid, BlockRange range, int64_t block_cols) {
  check_range(grid, range);
  if (range.empty()) return {nullptr, t.dtype, 1, 0, 0};
  const int64_t begin = begin_of(range.first, grid, t.stride, block_cols),
                end = end_of(range.end() - 1, grid, t.stride, {t.cols, block_cols});
  return {t.data == nullptr ? nullptr : t.data + begin * size_of(t.dtype), t.dtype, 1, end - begin,
          end - begin};
}

Tensor whole_of_span(const Tensor& span, const Tensor& shape, BlockRange range) {
  Tensor whole{span.data, span.dtype, shape.rows, shape.cols, shape.stride};
  if (span.data == nullptr || range.empty()) return whole;
  const int64_t begin = begin_of(range.first, {shape.rows, shape.cols}, shape.stride, kUpdateBlock);
  // May point outside the allocation, so computed as an integer; elements before `begin` are never
  // accessed.
  whole.data = reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(span.data) -
                                            uintptr_t(begin * size_of(span.dtype)));
  return whole;
}

}  // namespace mpt
