// What the optimizers ask of a device: the norm of the gradients, batches of updates, their preparation by
// Apollo-E. Written once over Exec (update_ops_on.h) and instantiated per backend.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "core/tensor.h"
#include "device/device.h"
#include "device/ops_registry.h"
#include "optim/apollo_e.h"
#include "optim/piece_map.h"
#include "optim/rule_list.h"
#include "optim/update_batch.h"
#include "precision/encoded_tensor.h"

namespace mpt {

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
  static constexpr std::string_view kFamily = "optimizers' operations";
  struct Options {};

  virtual ~UpdateOps() = default;
  // Updates by the step of that number of the rule, of weights stored so. Throws LogicError if the rule has
  // no such arithmetic.
  [[nodiscard]] virtual std::unique_ptr<UpdateBatch> make_batch(const RuleConfig& rule, size_t step,
                                                                BatchStorage storage) const = 0;
  // mean, fp32 [1, 1]: over all elements of a tensor whose format has_relative_scales(), the scales of their
  // blocks, without the tensor's own. sums: fp64 [1, rows] scratch. The same bits in any order: the sums are
  // exact.
  virtual void find_mean_scale(const EncodedTensor& weights, const Tensor& sums, const Tensor& mean) = 0;
  // Before UpdateBatch::find_maxima(), where another rank has the units: 0, the least that there is.
  virtual void clear_maxima(const Tensor& maxima) = 0;
  // After update(), wherever the tensor is held: its scale is the one that its codes are stored with.
  virtual void take_maximum(const EncodedTensor& weights, const Tensor& next_maximum,
                            const StepControl* control) = 0;

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

template <>
std::unique_ptr<UpdateOps> make_cpu_ops(const UpdateOps::Options&);

}  // namespace mpt
