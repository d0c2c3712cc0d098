// What a model tells, and asks, whoever trains it: where data parallel training exchanges weights and
// gradients.
//
// A model that nobody trains calls what does nothing.
#pragma once

#include "core/tensor.h"

namespace mpt {

class GradientHooks {
 public:
  virtual ~GradientHooks() = default;
  // The weights of a parameter group (parameters.h) are read next: they must be what the last step made of
  // them, and what GEMMs read must be up to date.
  virtual void before_use(int64_t /*group*/) {}
  // Backward has made its last addition of the current micro-batch to the gradients of a group.
  virtual void gradients_added(int64_t /*group*/) {}
  // The largest over all ranks, in the order of the device's work; fp32 [1, n].
  virtual void reduce_amax(const Tensor& /*values*/) {}

  // Those that do nothing.
  static GradientHooks& none() {
    static GradientHooks nothing;
    return nothing;
  }
};

}  // namespace mpt
