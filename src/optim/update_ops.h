// What the optimizers ask of a device: the update of a tensor and sums of squares. Written once over Exec
// (update_ops_on.h) and instantiated per backend.
#pragma once

#include <memory>
#include <span>
#include <variant>

#include "core/tensor.h"
#include "device/device.h"
#include "optim/rules.h"
#include "precision/encoded_tensor.h"

namespace mpt {

// The one list of rules.
using AnyRule = std::variant<AdamW, MPlusAdam<ScaleDecay>, MPlusAdam<ExponentDecay>>;

struct UpdateCall {
  AnyRule rule;
  EncodedTensor weights;           // updated
  std::span<const Tensor> states;  // in the order of the rule's kStates, fp32 or bf16, updated
  Tensor gradient;                 // fp32 or bf16
  float grad_scale = 1.0f;
};

class UpdateOps {
 public:
  virtual ~UpdateOps() = default;
  virtual void update(const UpdateCall& call) = 0;
  // partial[i], fp64: the sum of squares of the i-th piece of the logical view; square_sums() pieces.
  virtual void sum_of_squares(const Tensor& tensor, const Tensor& partial) = 0;
};

// Pieces that sum_of_squares cuts a tensor into; a property of its shape alone, so the sum's order is too.
int64_t square_sums(const Tensor& tensor);

std::unique_ptr<UpdateOps> make_update_ops(Device& device);

}  // namespace mpt
