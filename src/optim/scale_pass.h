// What an update must know of the scales of whole tensors: the mean of their blocks' scales before it, and
// the amax of their new weights before these are encoded. Formats say which of it they need
// (weight_formats.h).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "optim/optimizer_states.h"
#include "optim/update/optimizer_ops.h"
#include "precision/codec_ops.h"

namespace mpt {

class ScalePass {
 public:
  ScalePass(const OptimizerConfig& config, std::span<const UpdateTarget> targets,
            std::span<const BlockRange> blocks, Device& device, Allocator& allocator);

  // Of an update, in this order. find_means() and clear_maxima() begin it.
  void find_means(OptimizerOps& ops);
  void clear_maxima(OptimizerOps& ops);
  // Then the own update blocks' maxima.
  void find_maxima(const UpdateBatch& batch, const BatchCall& call) const;
  // Those of a tensor that is cut become the tensor's.
  void reduce_maxima(Communicator& ranks);
  // Behind the update: the tensors' scales are those that their codes are stored with.
  void take_maxima(OptimizerOps& ops, const StepControl* control);

  // Moves a tensor's scale if its blocks' scales ask for it, when all of its weights are here.
  void rescale(size_t target);

  // Adds to a slot what its update reads of all this.
  void complete(size_t target, TensorSlot& slot) const;
  [[nodiscard]] Tensor maxima_of_blocks() const { return maxima_of_blocks_; }

 private:
  std::span<const UpdateTarget> targets_;
  std::vector<size_t> live_;             // targets whose format needs_maximum()
  Tensor next_maxima_;                   // [1, live tensors] fp32
  Tensor maxima_of_blocks_;              // [1, most own update blocks of one] fp32
  std::vector<size_t> relative_;         // own targets whose additive rates follow their blocks' scales
  Tensor mean_scales_;                   // [1, those] fp32
  Tensor scale_sums_;                    // [1, most rows of one] fp64
  std::unique_ptr<CodecOps> codec_;      // null: no target is scaled
};

}  // namespace mpt
