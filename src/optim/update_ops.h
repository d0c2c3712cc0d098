// What the optimizers ask of a device: the norm of the gradients, the updates of a step, their preparation by
// Apollo-E. Written once over Exec (update_ops_on.h) and instantiated per backend.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <variant>

#include "core/tensor.h"
#include "device/device.h"
#include "optim/apollo_e.h"
#include "optim/kahan.h"
#include "optim/piece_map.h"
#include "optim/rules.h"
#include "precision/encoded_tensor.h"
#include "precision/unit_range.h"

namespace mpt {

template <class Direction>
using MPlusAdamScale = MPlusAdam<ScaleDecay, Direction>;
template <class Direction>
using MPlusAdamExponent = MPlusAdam<ExponentDecay, Direction>;

// The one list of rules.
using AnyRule = std::variant<AdamW, Madam, MPlusAdamScale<DenseDirection>, MPlusAdamExponent<DenseDirection>,
                             MPlusAdamScale<ProjectedDirection>, MPlusAdamExponent<ProjectedDirection>>;

// Whether the amax of a tensor's new weights must be known before any of them is stored.
inline bool needs_next_maximum(const EncodedTensor& weights) {
  return weights.encoding.format == WeightFormat::kNvfp4 &&
         weights.encoding.nvfp4_scale_mode == Nvfp4ScaleMode::kLive;
}

// The update of one tensor, or of a run of its units: of states and residuals only theirs need be in memory,
// and nothing else of weights and gradient is touched. Live nvfp4 writes its tensor's scale with
// take_maximum().
struct UpdateCall {
  AnyRule rule;
  EncodedTensor weights;                        // updated
  std::span<const Tensor> states;               // in the order of the rule's kStates, fp32 or bf16, updated
  std::span<const DitherSource> state_dithers;  // as many
  StateUpdate state_update = StateUpdate::kOnce;
  Tensor gradient;  // fp32 or bf16
  DitherSource weight_dither{};
  SharedFactors factors{};  // of rules that take one
  Tensor mean_scale{};      // of nvfp4, as find_mean_scale() left it: additive rates in proportion to
                            // the blocks' scales; none: one rate for all
  std::optional<UnitRange> units{};  // none: all
  Tensor next_maximum{};  // for live nvfp4, fp32 [1, 1]: the amax of the whole tensor's new weights

  // Compensated weights, where residuals has rows: weights and residuals are bf16, and the rule is
  // per_op_adamw where that is given.
  Tensor residuals{};
  std::optional<KahanPerOpAdamW> per_op_adamw{};

  [[nodiscard]] UnitRange range() const { return units.value_or(all_units(weights.rows, weights.cols)); }
};

// The updates of a step. What differs from step to step (rates, corrections, draws) is read from `table`, in
// device memory, so that the same calls can be made again with another table.
struct UpdatesCall {
  std::span<const UpdateCall> tensors;
  const std::byte* table;      // as write_table() wrote it for these tensors
  const StepControl* control;  // in device memory
  Tensor unit_maxima{};        // fp32 [1, most units of a tensor] scratch, for live nvfp4
};

// All gradients' norm and what follows from it. It is found from sums of squares over pieces of
// kUnitsPerPiece units, added in the order of tensors and pieces.
struct NormCall {
  std::span<const Tensor> gradients;
  const PieceMap& pieces;  // of the gradients
  const std::byte* table;  // as write_norm_table() wrote it for this call
  Tensor partial;          // fp64 [1, pieces.pieces()]: the sums, in the order of places
  Tensor sums;             // fp64 [1, sums_of_pieces()] scratch
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
  // mean, fp32 [1, 1]: over the elements of an nvfp4 tensor, all of it, the scales of their blocks, without
  // the tensor's own. sums: fp64 [1, rows] scratch. The same bits in any order: the sums are exact.
  virtual void find_mean_scale(const EncodedTensor& weights, const Tensor& sums, const Tensor& mean) = 0;
  // Every tensor whose weights need it gets in next_maximum the amax that its units would have after
  // update(), which reads that of the whole tensor there.
  virtual void find_maxima(const UpdatesCall& call) = 0;
  // In any order.
  virtual void update(const UpdatesCall& call) = 0;
  // Before find_maxima(), where another rank has the units: 0, the least that there is.
  virtual void clear_maxima(const Tensor& maxima) = 0;
  // After update(), wherever the tensor is held: its scale is the one that its codes are stored with.
  virtual void take_maximum(const EncodedTensor& weights, const Tensor& next_maximum,
                            const StepControl* control) = 0;
  // Counts what update() of that tensor will do, if the step proceeds, into survival_rows() of
  // SurvivalCounters. Its next_maximum must be there.
  virtual void survey(const UpdateCall& call, const StepControl* control, const Tensor& counters) = 0;

  [[nodiscard]] virtual int64_t norm_table_bytes(const NormCall& call) const = 0;
  virtual void write_norm_table(const NormCall& call, std::byte* image) const = 0;
  // The own pieces' sums of squares; then, when all are there, the verdict.
  virtual void sum_gradients(const NormCall& call) = 0;
  virtual void judge(const NormCall& call) = 0;

  // To be called before an update of the same tensor by a rule with factors.
  virtual void project(const ProjectionCall& call) = 0;
  // partial[i], fp64: the sum of squares of the i-th piece of the logical elements; square_sums() pieces.
  virtual void sum_of_squares(const Tensor& tensor, const Tensor& partial) = 0;
  virtual void sum_of_squares(const EncodedTensor& tensor, const Tensor& partial) = 0;
  // Rows of the table of counters for so many units; a row is a SurvivalCounters.
  [[nodiscard]] virtual int64_t survival_rows(int64_t units) const = 0;
};

// Pieces that sum_of_squares cuts a tensor into; a property of its shape alone, so the sum's order is too.
int64_t square_sums(int64_t rows, int64_t cols);
// What `pieces` of all tensors are added to first, before these are: one group takes too long for all.
int64_t sums_of_pieces(int64_t pieces);

std::unique_ptr<UpdateOps> make_update_ops(Device& device);

}  // namespace mpt
