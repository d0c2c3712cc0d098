// What the optimizers ask of a device: the norm of the gradients, the updates of a step, their preparation by
// Apollo-E. Written once over Exec (update_ops_on.h) and instantiated per backend.
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

// Whether the amax of a tensor's new weights must be known before any of them is stored.
inline bool needs_next_maximum(const EncodedTensor& weights) {
  return weights.encoding.format == WeightFormat::kNvfp4 &&
         weights.encoding.nvfp4_scale_mode == Nvfp4ScaleMode::kLive;
}

// The update of one tensor.
struct UpdateCall {
  AnyRule rule;
  EncodedTensor weights;                        // updated
  std::span<const Tensor> states;               // in the order of the rule's kStates, fp32 or bf16, updated
  std::span<const DitherSource> state_dithers;  // as many
  StateUpdate state_update = StateUpdate::kOnce;
  Tensor gradient;  // fp32 or bf16
  DitherSource weight_dither{};
  SharedFactors factors{};   // of rules that take one
  MaximumScratch maximum{};  // for live nvfp4

  // Compensated weights, where residuals has rows: weights and residuals are bf16, and the rule is
  // per_op_adamw where that is given.
  Tensor residuals{};
  std::optional<KahanPerOpAdamW> per_op_adamw{};
};

// The updates of a step. What differs from step to step (rates, corrections, draws) is read from `table`, in
// device memory, so that the same calls can be made again with another table.
struct UpdatesCall {
  std::span<const UpdateCall> tensors;
  const std::byte* table;      // as write_table() wrote it for these tensors
  const StepControl* control;  // in device memory
  // Of a single tensor, where it has rows: a table of survival_rows() SurvivalCounters that the fates of its
  // update are counted into before it is made. The step must proceed then.
  Tensor survival{};
};

// All gradients' norm and what follows from it.
struct NormCall {
  std::span<const Tensor> gradients;
  const std::byte* table;  // as write_norm_table() wrote it for these gradients
  Tensor partial;          // fp64 [1, square_sums() of all gradients] scratch
  Tensor losses{};         // fp64 [1, n]: of a step that is made only if they are finite; none: no rows
  double clip_grad_norm;
  StepControl* control;  // in device memory, written
};

class UpdateOps {
 public:
  virtual ~UpdateOps() = default;
  // The tables are written on the host; where a tensor stands in them depends on the list alone.
  [[nodiscard]] virtual int64_t table_bytes(std::span<const UpdateCall> tensors) const = 0;
  virtual void write_table(const UpdatesCall& call, std::byte* image) const = 0;
  // Tensors in any order, but what comes in several passes one after another.
  virtual void update(const UpdatesCall& call) = 0;

  [[nodiscard]] virtual int64_t norm_table_bytes(std::span<const Tensor> gradients) const = 0;
  virtual void write_norm_table(const NormCall& call, std::byte* image) const = 0;
  virtual void measure(const NormCall& call) = 0;

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
