// Exponential moving average of a run's weights, in FP32 (train.ema_decay).
//
// After step t it is the mean of the weights after steps 1 to t, each weighted by `decay` times the
// weight of the next (docs/numerics.md "EMA of weights"). Updates and skipped steps count alike.
// The average is part of checkpoints; nothing in training reads it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/named_tensor.h"
#include "core/tensor.h"
#include "device/device.h"
#include "device/memory.h"
#include "model/weight_store.h"
#include "precision/codec_ops.h"
#include "ranks/partition.h"

namespace mpt {

inline constexpr MemoryPurpose kWeightEmaMemory{"EMA of weights"};

// Name in checkpoints of a parameter's average.
std::string ema_name(const std::string& parameter);

class WeightEma {
 public:
  // Covers the update blocks of `rank`; with a single rank, all blocks. All but the partition must
  // outlive this object.
  struct Place {
    const Partition& partition;
    int64_t rank;
    Device& device;
    Allocator& allocator;
  };
  WeightEma(const WeightStore& weights, double decay, const Place& place);

  // Call after every step, in order from 1, when all weights of this rank are in place.
  void follow(int64_t step);

  // Own elements.
  [[nodiscard]] std::vector<TensorPart> parts() const;

 private:
  struct Mean {
    BlockRange own;
    Tensor values;  // fp32, of the parameter's logical shape; only own elements exist
  };

  const WeightStore& weights_;
  double decay_;
  std::vector<Mean> means_;
  std::unique_ptr<CodecOps> ops_;
};

}  // namespace mpt
