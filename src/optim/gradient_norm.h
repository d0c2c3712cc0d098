// The norm of all gradients, which clips them and decides whether a step is made: sums of squares over pieces
// of kBlocksPerPiece update blocks, added in the order of tensors and pieces (docs/numerics.md "Norm and
// clipping").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"
#include "optim/unit_states.h"
#include "precision/encoded_tensor.h"
#include "precision/partition.h"

namespace mpt {

class Communicator;
class UpdateOps;

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

// Where the sums of all pieces lie: those of a rank side by side, so that ranks can exchange them, in an
// array of which every rank knows the order of tensors and pieces.
class PieceMap {
 public:
  // What update blocks of every tensor each rank has, [ranks][tensors]; each tensor once in all.
  PieceMap(const std::vector<std::vector<BlockRange>>& ranges, int64_t rank);
  PieceMap(const Partition& partition, int64_t rank);

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

// What the operations of a device are given (UpdateOps).
struct NormCall {
  std::span<const Tensor> gradients;
  const PieceMap& pieces;  // of the gradients
  const std::byte* table;  // as write_norm_table() wrote it for this call
  Tensor partial;          // fp64 [1, pieces.pieces()]: the sums, in the order of places
  Tensor sums;             // fp64 [1, sums_of_pieces()] scratch
  Tensor losses{};         // fp64 [1, n]: of a step that is made only if they are finite; none: no rows
  double clip_grad_norm;
  StepControl* control;  // in device memory, written
};

class GradientNorm {
 public:
  struct Options {
    double clip_grad_norm;
    const Partition& partition;  // of the tensors that have the gradients
    Communicator& ranks;
    Device& device;
    Allocator& allocator;
  };
  GradientNorm(std::vector<Tensor> gradients, const Options& options, UpdateOps& ops);

  // Enqueued: the own pieces' sums, their exchange over the ranks, and what follows for the step, which is
  // copied to the host.
  void measure(UpdateOps& ops, const Tensor& losses);
  // A step with this factor, whatever the norm is.
  void proceed_with(float grad_scale);
  // On the host, after Device::synchronize().
  [[nodiscard]] const StepControl& control() const { return *control_.image<StepControl>(); }
  [[nodiscard]] StepControl* device_control() const { return control_.tensor.as<StepControl>(); }

  // Of any tensor that has no more elements than all gradients, at once.
  double sum_of_squares(UpdateOps& ops, const EncodedTensor& tensor);

 private:
  [[nodiscard]] NormCall call(const Tensor& losses) const;

  double clip_grad_norm_;
  PieceMap pieces_;
  Communicator& ranks_;
  Device& device_;
  std::vector<Tensor> gradients_;
  Tensor partial_;                     // [1, pieces of all tensors] fp64
  std::vector<Tensor> partial_parts_;  // of the ranks
  Tensor sums_;                        // [1, sums of pieces] fp64
  Staged control_;                     // StepControl
  Staged table_;                       // of gradients_, written once
  std::vector<double> host_partial_;
};

}  // namespace mpt
