// Where the sums of squares over the pieces of all gradients lie: those of a rank side by side, so that ranks
// can exchange them, in an array of which every rank knows the order of tensors and pieces.
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"
#include "precision/partition.h"

namespace mpt {

// Consecutive pieces, counted through all tensors in their order, from `piece` up to the next run's first:
// piece i lies at place i + shift.
struct PieceRun {
  int64_t piece;
  int64_t shift;
};

// This rank's pieces of a tensor, counted from the tensor's first: piece i lies at place i + shift.
struct OwnPieces {
  int64_t first = 0, count = 0;
  int64_t shift = 0;
};

class PieceMap {
 public:
  // What units of every tensor each rank has, [ranks][tensors]; each tensor once in all.
  PieceMap(const std::vector<std::vector<UnitRange>>& ranges, int64_t rank);

  [[nodiscard]] int64_t pieces() const { return first_place_.back(); }  // of all ranks
  // In the order of pieces; none if there are none.
  [[nodiscard]] const std::vector<PieceRun>& runs() const { return runs_; }
  [[nodiscard]] const OwnPieces& own(size_t tensor) const { return own_[tensor]; }
  [[nodiscard]] int64_t own_pieces() const;
  // Every rank's places in an array of all.
  [[nodiscard]] std::vector<Tensor> parts(const Tensor& array) const;

 private:
  std::vector<PieceRun> runs_;
  std::vector<OwnPieces> own_;        // of every tensor
  std::vector<int64_t> first_place_;  // of every rank, and behind the last
};

}  // namespace mpt
