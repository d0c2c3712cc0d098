// Assigns the update blocks of all tensors to ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "core/block_range.h"

namespace mpt {

// A tensor may be cut only at multiples of this many update blocks. Sums over a tensor are sums of
// tile sums, so their bits do not depend on how the tensor is cut.
inline constexpr int64_t kBlocksPerTile = 16;

enum class Cut : uint8_t { kBetweenTiles, kNowhere };

struct PartitionedTensor {
  int64_t rows, cols;
  int64_t bucket = 0;  // tensors of a bucket are exchanged together; nondecreasing along the list
  Cut cut = Cut::kBetweenTiles;
};

// Cuts every bucket into one run of consecutive tiles per rank, balanced by elements as far as
// whole tiles allow. Tensors that must not be cut go whole, largest first, to the rank with the
// fewest elements so far. Depends only on the list and the number of ranks.
class Partition {
 public:
  Partition(std::vector<PartitionedTensor> tensors, int64_t ranks);

  [[nodiscard]] int64_t ranks() const { return int64_t(ranges_.size()); }
  [[nodiscard]] int64_t tensors() const { return int64_t(tensors_.size()); }
  // Empty if the rank owns nothing of the tensor.
  [[nodiscard]] BlockRange range(int64_t rank, int64_t tensor) const {
    return ranges_[size_t(rank)][size_t(tensor)];
  }
  // Logical elements owned by the rank, over all tensors.
  [[nodiscard]] int64_t elements(int64_t rank) const;

 private:
  void cut_bucket(size_t first, size_t end);
  void give_whole_tensors();
  [[nodiscard]] int64_t cuttable_elements(size_t tensor) const;

  std::vector<PartitionedTensor> tensors_;
  std::vector<std::vector<BlockRange>> ranges_;  // [ranks][tensors]
};

}  // namespace mpt
