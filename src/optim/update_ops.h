// What the optimizers ask of a device: the update of a tensor, its preparation by Apollo-E, and sums of
// squares. Written once over Exec (update_ops_on.h) and instantiated per backend.
#pragma once

#include <memory>
#include <span>
#include <variant>

#include "core/tensor.h"
#include "device/device.h"
#include "optim/apollo_e.h"
#include "optim/kahan.h"
#include "optim/rules.h"
#include "precision/encoded_tensor.h"

namespace mpt {

template <class Direction>
using MPlusAdamScale = MPlusAdam<ScaleDecay, Direction>;
template <class Direction>
using MPlusAdamExponent = MPlusAdam<ExponentDecay, Direction>;

// The one list of rules.
using AnyRule = std::variant<AdamW, Madam, MPlusAdamScale<DenseDirection>, MPlusAdamExponent<DenseDirection>,
                             MPlusAdamScale<ProjectedDirection>, MPlusAdamExponent<ProjectedDirection>>;

// Scratch of an update whose weights' format needs max |w'| of the tensor first; the largest tensor decides.
struct MaximumScratch {
  Tensor units;   // fp32 [1, most units]
  Tensor tensor;  // fp32 [1, 1]
};
int64_t units_of(int64_t rows, int64_t cols);

struct UpdateCall {
  AnyRule rule;
  EncodedTensor weights;                        // updated
  std::span<const Tensor> states;               // in the order of the rule's kStates, fp32 or bf16, updated
  std::span<const DitherSource> state_dithers;  // as many
  StateUpdate state_update = StateUpdate::kOnce;
  Tensor gradient;  // fp32 or bf16
  float grad_scale = 1.0f;
  DitherSource weight_dither{};
  SharedFactors factors{};   // of rules that take one
  MaximumScratch maximum{};  // for live nvfp4

  // Where it has rows: a table of survival_rows() SurvivalCounters that the fates of this update are counted
  // into before it is made.
  Tensor survival{};

  // Compensated weights, where residuals has rows: weights and residuals are bf16, and the rule is
  // per_op_adamw where that is given.
  Tensor residuals{};
  std::optional<KahanPerOpAdamW> per_op_adamw{};
};

class UpdateOps {
 public:
  virtual ~UpdateOps() = default;
  virtual void update(const UpdateCall& call) = 0;
  // To be called before an update of the same tensor by a rule with factors.
  virtual void project(const ProjectionCall& call) = 0;
  // partial[i], fp64: the sum of squares of the i-th piece of the logical elements; square_sums() pieces.
  virtual void sum_of_squares(const Tensor& tensor, const Tensor& partial) = 0;
  virtual void sum_of_squares(const EncodedTensor& tensor, const Tensor& partial) = 0;
  // Rows of the table of counters for a tensor; a row is a SurvivalCounters.
  [[nodiscard]] virtual int64_t survival_rows(int64_t rows, int64_t cols) const = 0;
};

// Pieces that sum_of_squares cuts a tensor into; a property of its shape alone, so the sum's order is too.
int64_t square_sums(int64_t rows, int64_t cols);

std::unique_ptr<UpdateOps> make_update_ops(Device& device);

}  // namespace mpt
