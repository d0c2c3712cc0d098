// Global gradient norm, used for clipping and to decide whether to apply a step. Squares are summed
// over reduction tiles of kBlocksPerTile update blocks, in the order of tensors and tiles
// (docs/numerics.md "Norm and clipping").
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "device/device.h"
#include "optim/update/tensor_inputs.h"
#include "precision/encoded_tensor.h"
#include "ranks/partition.h"

namespace mpt {

class Communicator;
class OptimizerOps;

// Consecutive tiles in the numbering over all tensors, from `tile` to the start of the next span.
// The sum of tile i is at index i + shift.
struct TileSpan {
  int64_t tile;
  int64_t shift;
};

// This rank's tiles of a tensor, numbered from the start of the tensor. The sum of tile i is at
// index i + shift.
struct OwnTiles {
  int64_t first = 0, count = 0;
  int64_t shift = 0;
};

// Layout of the array of tile sums. The sums of a rank are contiguous, so ranks can exchange them,
// and every rank can recover the order of tensors and tiles.
class ReductionTiles {
 public:
  // Update blocks of every rank, [ranks][tensors]; each tensor must be covered exactly once.
  ReductionTiles(const std::vector<std::vector<BlockRange>>& ranges, int64_t rank);
  ReductionTiles(const Partition& partition, int64_t rank);

  [[nodiscard]] int64_t tiles() const { return first_place_.back(); }  // over all ranks
  // In tile order; empty if there are no tiles.
  [[nodiscard]] const std::vector<TileSpan>& spans() const { return spans_; }
  [[nodiscard]] const OwnTiles& own(size_t tensor) const { return own_[tensor]; }
  [[nodiscard]] int64_t own_tiles() const;
  // Each rank's part of an array of all tile sums.
  [[nodiscard]] std::vector<Tensor> shards(const Tensor& array) const;

 private:
  std::vector<TileSpan> spans_;
  std::vector<OwnTiles> own_;         // one per tensor
  std::vector<int64_t> first_place_;  // start of each rank, then the end of the last
};

// Upper limits for applying a step; NaN means no limit.
struct StepLimits {
  double grad_norm = std::numeric_limits<double>::infinity();
  double loss_sum = std::numeric_limits<double>::infinity();
};

// Arguments of the norm operations (OptimizerOps).
struct NormCall {
  std::span<const Tensor> gradients;
  const ReductionTiles& tiles;  // of the gradients
  const std::byte* table;       // written by write_norm_table() for this call
  Tensor partial;               // tile sums, in the layout of `tiles`
  Tensor sums;                  // fp64 [1, sums_of_tiles()] scratch
  Tensor losses{};              // one that is not finite prevents the step; no rows: none
  double clip_grad_norm;
  const StepLimits* limits;  // in device memory
  StepControl* control;      // in device memory, written
};

class GradientNorm {
 public:
  struct Options {
    double clip_grad_norm;
    const Partition& partition;  // of the gradient tensors
    Communicator& ranks;
    Device& device;
    Allocator& allocator;
  };
  GradientNorm(std::vector<Tensor> gradients, const Options& options, OptimizerOps& ops);

  // Enqueues the sums of own tiles, their all-gather, the norm and StepControl, and the copy of
  // StepControl to the host.
  void measure(OptimizerOps& ops, const Tensor& losses);
  // Applies from the next measure() on. The host must not be ahead of the device.
  void set_limits(const StepLimits& limits) { *limits_.image<StepLimits>() = limits; }
  // Makes the step unconditional, with the given gradient scale.
  void proceed_with(float grad_scale);
  // Valid on the host after Device::synchronize().
  [[nodiscard]] const StepControl& control() const { return *control_.image<StepControl>(); }
  [[nodiscard]] StepControl* device_control() const { return control_.tensor.as<StepControl>(); }

  // Returns the sum of squares of any tensor with at most as many elements as all gradients. Blocks
  // until the result is available.
  double sum_of_squares(OptimizerOps& ops, const EncodedTensor& tensor);

 private:
  [[nodiscard]] NormCall call(const Tensor& losses) const;

  double clip_grad_norm_;
  ReductionTiles tiles_;
  Communicator& ranks_;
  Device& device_;
  std::vector<Tensor> gradients_;
  Tensor partial_;                      // [1, tiles of all tensors] fp64
  std::vector<Tensor> partial_shards_;  // one per rank
  Tensor sums_;                         // [1, sums of tiles] fp64
  PinnedBuffer limits_;                 // StepLimits
  PinnedBuffer control_;                // StepControl
  PinnedBuffer table_;                  // for gradients_, written once
  std::vector<double> host_partial_;
};

}  // namespace mpt
