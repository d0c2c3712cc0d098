// The norm of all gradients, which clips them and decides whether a step is made: sums of squares over
// reduction tiles of kBlocksPerTile update blocks, added in the order of tensors and tiles (docs/numerics.md
// "Norm and clipping").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/partition.h"
#include "device/device.h"
#include "optim/update/tensor_inputs.h"
#include "precision/encoded_tensor.h"

namespace mpt {

class Communicator;
class OptimizerOps;

// Consecutive tiles, counted through all tensors in their order, from `tile` up to the next span's first:
// tile i lies at place i + shift.
struct TileSpan {
  int64_t tile;
  int64_t shift;
};

// This rank's tiles of a tensor, counted from the tensor's first: tile i lies at place i + shift.
struct OwnTiles {
  int64_t first = 0, count = 0;
  int64_t shift = 0;
};

// Where the sums of all tiles lie: those of a rank side by side, so that ranks can exchange them, in an
// array of which every rank knows the order of tensors and tiles.
class ReductionTiles {
 public:
  // What update blocks of every tensor each rank has, [ranks][tensors]; each tensor once in all.
  ReductionTiles(const std::vector<std::vector<BlockRange>>& ranges, int64_t rank);
  ReductionTiles(const Partition& partition, int64_t rank);

  [[nodiscard]] int64_t tiles() const { return first_place_.back(); }  // of all ranks
  // In the order of tiles; none if there are none.
  [[nodiscard]] const std::vector<TileSpan>& spans() const { return spans_; }
  [[nodiscard]] const OwnTiles& own(size_t tensor) const { return own_[tensor]; }
  [[nodiscard]] int64_t own_tiles() const;
  // Every rank's places in an array of all.
  [[nodiscard]] std::vector<Tensor> shards(const Tensor& array) const;

 private:
  std::vector<TileSpan> spans_;
  std::vector<OwnTiles> own_;         // of every tensor
  std::vector<int64_t> first_place_;  // of every rank, and behind the last
};

// What the operations of a device are given (OptimizerOps).
struct NormCall {
  std::span<const Tensor> gradients;
  const ReductionTiles& tiles;  // of the gradients
  const std::byte* table;  // as write_norm_table() wrote it for this call
  Tensor partial;          // fp64 [1, tiles.tiles()]: the sums, in the order of places
  Tensor sums;             // fp64 [1, sums_of_tiles()] scratch
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
  GradientNorm(std::vector<Tensor> gradients, const Options& options, OptimizerOps& ops);

  // Enqueued: the own tiles' sums, their exchange over the ranks, and what follows for the step, which is
  // copied to the host.
  void measure(OptimizerOps& ops, const Tensor& losses);
  // A step with this factor, whatever the norm is.
  void proceed_with(float grad_scale);
  // On the host, after Device::synchronize().
  [[nodiscard]] const StepControl& control() const { return *control_.image<StepControl>(); }
  [[nodiscard]] StepControl* device_control() const { return control_.tensor.as<StepControl>(); }

  // Of any tensor that has no more elements than all gradients, at once.
  double sum_of_squares(OptimizerOps& ops, const EncodedTensor& tensor);

 private:
  [[nodiscard]] NormCall call(const Tensor& losses) const;

  double clip_grad_norm_;
  ReductionTiles tiles_;
  Communicator& ranks_;
  Device& device_;
  std::vector<Tensor> gradients_;
  Tensor partial_;                      // [1, tiles of all tensors] fp64
  std::vector<Tensor> partial_shards_;  // of the ranks
  Tensor sums_;                         // [1, sums of tiles] fp64
  PinnedBuffer control_;                     // StepControl
  PinnedBuffer table_;                       // of gradients_, written once
  std::vector<double> host_partial_;
};

}  // namespace mpt
