// Per-tensor scale information for an update: the mean of block scales before it, and the amax of
// the new weights before they are encoded. Formats say which they need (weight_formats.h).
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
            const OptimizerStates& states, Device& device, Allocator& allocator);

  // Phases of an update, in this order. First find_means() and clear_maxima().
  void find_means(OptimizerOps& ops);
  void clear_maxima(OptimizerOps& ops);
  // Then finds the maxima of own update blocks.
  void find_maxima(const UpdateBatch& batch, const BatchCall& call) const;
  // Combines the maxima over ranks.
  void reduce_maxima(Communicator& ranks);
  // After the update: sets tensor scales to those used to store the new codes.
  void take_maxima(OptimizerOps& ops, const StepControl* control);

  // Moves a tensor's scale if its block scales require it. All weights of the tensor must be
  // present.
  void rescale(size_t target);

  // Adds to a slot the maxima and means that its update reads.
  void complete(size_t target, TensorSlot& slot) const;
  [[nodiscard]] Tensor maxima_of_blocks() const { return maxima_of_blocks_; }

 private:
  std::span<const UpdateTarget> targets_;
  std::vector<size_t> live_;         // targets whose format needs_maximum()
  Tensor next_maxima_;               // [1, live tensors] fp32
  Tensor maxima_of_blocks_;          // sized for the target with the most own update blocks
  std::vector<size_t> relative_;     // own targets whose additive rates follow block scales
  Tensor mean_scales_;               // [1, relative targets] fp32
  Tensor scale_sums_;                // [1, most rows of a target] fp64
  std::unique_ptr<CodecOps> codec_;  // null: no target is scaled
};

}  // namespace mpt
