// Which update blocks of which tensor belong to which rank.
#pragma once

#include <cstdint>
#include <vector>

#include "core/blocks.h"

namespace mpt {

// Update blocks between two places where a tensor may be cut: sums over a tensor are made of sums over such
// tiles, so that they are the same bits however it is cut.
inline constexpr int64_t kBlocksPerTile = 16;

enum class Cut : uint8_t { kBetweenTiles, kNowhere };

struct PartitionedTensor {
  int64_t rows, cols;
  int64_t bucket = 0;  // tensors that are exchanged together; ascending along the list
  Cut cut = Cut::kBetweenTiles;
};

// Every bucket is cut into as many runs of consecutive tiles as there are ranks, with as many elements as
// tiles allow; tensors that must not be cut go whole to the rank that has least by then, largest first. A
// function of the list and the number of ranks alone.
class Partition {
 public:
  Partition(std::vector<PartitionedTensor> tensors, int64_t ranks);

  [[nodiscard]] int64_t ranks() const { return int64_t(ranges_.size()); }
  [[nodiscard]] int64_t tensors() const { return int64_t(tensors_.size()); }
  // Empty where the rank has none of it.
  [[nodiscard]] BlockRange range(int64_t rank, int64_t tensor) const {
    return ranges_[size_t(rank)][size_t(tensor)];
  }
  // Of all tensors, logical.
  [[nodiscard]] int64_t elements(int64_t rank) const;

 private:
  void cut_bucket(size_t first, size_t end);
  void give_whole_tensors();
  [[nodiscard]] int64_t cuttable_elements(size_t tensor) const;

  std::vector<PartitionedTensor> tensors_;
  std::vector<std::vector<BlockRange>> ranges_;  // [ranks][tensors]
};

}  // namespace mpt
