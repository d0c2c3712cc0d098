#include "ranks/partition.h"

#include <algorithm>

#include "core/check.h"

namespace mpt {
namespace {

BlockGrid grid_of(const PartitionedTensor& tensor) { return {tensor.rows, tensor.cols}; }

int64_t tiles_of(const PartitionedTensor& tensor) {
  return (grid_of(tensor).blocks() + kBlocksPerTile - 1) / kBlocksPerTile;
}

BlockRange up_to_tile(const PartitionedTensor& tensor, int64_t tiles) {
  return {0, std::min(tiles * kBlocksPerTile, grid_of(tensor).blocks())};
}

int64_t elements_in(const PartitionedTensor& tensor, BlockRange range) {
  return elements_of(grid_of(tensor), range, {tensor.cols}).count;
}

// Number of leading tiles whose element count is nearest to `wanted`; ties go to the smaller
// number.
int64_t nearest_tiles(const PartitionedTensor& tensor, int64_t wanted) {
  const auto elements = [&](int64_t tiles) {
    return elements_in(tensor, up_to_tile(tensor, tiles));
  };
  int64_t low = 0, high = tiles_of(tensor);  // low: the last count with at most `wanted` elements
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (elements(middle) <= wanted)
      low = middle;
    else
      high = middle - 1;
  }
  if (low == tiles_of(tensor)) return low;
  return wanted - elements(low) <= elements(low + 1) - wanted ? low : low + 1;
}

// `total` * part / parts, without overflow.
int64_t share_of(int64_t total, int64_t part, int64_t parts) {
  return total / parts * part + total % parts * part / parts;
}

}  // namespace

Partition::Partition(std::vector<PartitionedTensor> tensors, int64_t ranks)
    : tensors_(std::move(tensors)) {
  check(ranks >= 1, "a partition needs at least one rank, found {}", ranks);
  for (size_t i = 1; i < tensors_.size(); ++i)
    check(tensors_[i - 1].bucket <= tensors_[i].bucket,
          "tensors must be in order of their buckets: bucket {} follows bucket {}",
          tensors_[i].bucket, tensors_[i - 1].bucket);
  ranges_.assign(size_t(ranks), std::vector<BlockRange>(tensors_.size()));
  for (size_t first = 0; first < tensors_.size();) {
    size_t end = first + 1;
    while (end < tensors_.size() && tensors_[end].bucket == tensors_[first].bucket) ++end;
    cut_bucket(first, end);
    first = end;
  }
  give_whole_tensors();
}

// Rank r's run ends as close as possible to r + 1 shares of the bucket's elements.
void Partition::cut_bucket(size_t first, size_t end) {
  int64_t total = 0;
  for (size_t i = first; i < end; ++i) total += cuttable_elements(i);
  int64_t before = 0;  // elements of the bucket before tensor i
  for (size_t i = first; i < end; ++i) {
    const int64_t elements = cuttable_elements(i);
    if (elements == 0) continue;
    int64_t begin = 0;  // update block
    for (int64_t rank = 0; rank < ranks(); ++rank) {
      const int64_t wanted = share_of(total, rank + 1, ranks()) - before;
      if (wanted < 0) continue;
      const int64_t block = up_to_tile(tensors_[i], nearest_tiles(tensors_[i], wanted)).end();
      if (block > begin) ranges_[size_t(rank)][i] = {begin, block - begin};
      begin = std::max(begin, block);
    }
    before += elements;
  }
}

int64_t Partition::cuttable_elements(size_t tensor) const {
  const PartitionedTensor& t = tensors_[tensor];
  return t.cut == Cut::kBetweenTiles ? t.rows * t.cols : 0;
}

void Partition::give_whole_tensors() {
  std::vector<size_t> whole;
  for (size_t i = 0; i < tensors_.size(); ++i)
    if (tensors_[i].cut == Cut::kNowhere) whole.push_back(i);
  std::ranges::stable_sort(whole, std::ranges::greater{},
                           [&](size_t i) { return tensors_[i].rows * tensors_[i].cols; });
  std::vector<int64_t> load;
  for (int64_t rank = 0; rank < ranks(); ++rank) load.push_back(elements(rank));
  for (const size_t i : whole) {
    const auto least = std::ranges::min_element(load);
    ranges_[size_t(least - load.begin())][i] = all_blocks(tensors_[i].rows, tensors_[i].cols);
    *least += tensors_[i].rows * tensors_[i].cols;
  }
}

int64_t Partition::elements(int64_t rank) const {
  int64_t sum = 0;
  for (size_t i = 0; i < tensors_.size(); ++i)
    sum += elements_in(tensors_[i], ranges_[size_t(rank)][i]);
  return sum;
}

}  // namespace mpt
