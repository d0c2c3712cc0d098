// Hooks that a model calls during a pass, at which data-parallel training exchanges weights,
// gradients and amaxes.
//
// The default hooks do nothing.
#pragma once

#include "core/tensor.h"

namespace mpt {

class GradientHooks {
 public:
  virtual ~GradientHooks() = default;
  // Called before the weights of a parameter group (parameters.h) are read. On return, the weights
  // must include the last update, and their decoded copies and casts must be current.
  virtual void before_use(int64_t /*group*/) {}
  // Called after backward has made its last addition of the current micro-batch to a group's
  // gradients.
  virtual void gradients_added(int64_t /*group*/) {}
  // Replaces values (fp32 [1, n]) by their maximum over ranks, in order with the device's work.
  virtual void reduce_amax(const Tensor& /*values*/) {}

  // Hooks that do nothing.
  static GradientHooks& none() {
    static GradientHooks nothing;
    return nothing;
  }
};

}  // namespace mpt
