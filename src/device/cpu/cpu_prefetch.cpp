#include "device/cpu/cpu_prefetch.h"

#include <algorithm>

#include "core/check.h"
#include "core/prefetch.h"

namespace mpt {

void PanelPrefetch::follow(const Tensor& block) {
  check(count_ < kMostBlocks, "more than {} blocks to prefetch", kMostBlocks);
  const int64_t element = size_of(block.dtype);
  if (block.elements() > 0)
    blocks_[size_t(count_++)] = {block.data, block.rows, block.stride * element,
                                 cache_lines(block.cols * element)};
}

int64_t PanelPrefetch::lines() const {
  int64_t lines = 0;
  for (const Rows& rows : blocks_) lines += rows.count * rows.lines;
  return lines;
}

const std::byte** PanelPrefetch::take(int64_t count, const std::byte** lines) {
  while (count > 0) {
    if (lines_of_row_ == 0) {
      while (block_ < count_ && blocks_[size_t(block_)].count == 0) ++block_;
      if (block_ == count_) break;
      Rows& rows = blocks_[size_t(block_)];
      line_ = rows.next;
      lines_of_row_ = rows.lines;
      rows.next += rows.stride;
      --rows.count;
    }
    const int64_t some = std::min(count, lines_of_row_);
    for (int64_t i = 0; i < some; ++i) lines[i] = line_ + i * kCacheLine;
    lines += some;
    line_ += some * kCacheLine;
    lines_of_row_ -= some;
    count -= some;
  }
  return lines;
}

}  // namespace mpt
