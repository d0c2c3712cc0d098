// What a model tells, and asks, the other ranks that hold the same parameters.
//
// All ranks come to the same calls in the same order. A model alone has none of this (null).
#pragma once

#include "core/tensor.h"

namespace mpt {

class Replicas {
 public:
  virtual ~Replicas() = default;
  // The weights of a parameter group (parameters.h) are read next: they must be what the last step made of
  // them on all ranks, and what products read must be up to date.
  virtual void before_use(int64_t group) = 0;
  // Backward has made its last addition of the current micro-batch to the gradients of a group.
  virtual void gradients_added(int64_t group) = 0;
  // The largest over all ranks, in the order of the device's work; fp32 [1, n].
  virtual void reduce_amax(const Tensor& values) = 0;
};

}  // namespace mpt
