// What the optimizers ask of a device: the norm of the gradients, batches of updates, their preparation by
// Apollo-E. Written once over Exec (optimizer_ops_on.h) and instantiated per backend.
#pragma once

#include <memory>
#include <string_view>

#include "core/tensor.h"
#include "device/device.h"
#include "device/ops_registry.h"
#include "optim/apollo_e.h"
#include "optim/gradient_norm.h"
#include "optim/rule_list.h"
#include "optim/update/update_batch.h"
#include "precision/encoded_tensor.h"

namespace mpt {

class OptimizerOps {
 public:
  static constexpr std::string_view kFamily = "optimizers' operations";
  struct Options {};

  virtual ~OptimizerOps() = default;
  // Updates by the step of that number of the rule, of weights stored so. Throws LogicError if the rule has
  // no such arithmetic.
  [[nodiscard]] virtual std::unique_ptr<UpdateBatch> make_batch(const RuleConfig& rule, size_t step,
                                                                BatchStorage storage) const = 0;
  // mean, fp32 [1, 1]: over all elements of a tensor whose format has_relative_scales(), the scales of their
  // blocks, without the tensor's own. sums: fp64 [1, rows] scratch. The same bits in any order: the sums are
  // exact.
  virtual void find_mean_scale(const EncodedTensor& weights, const Tensor& sums, const Tensor& mean) = 0;
  // Before UpdateBatch::find_maxima(), where another rank has the update blocks: 0, the least that there is.
  virtual void clear_maxima(const Tensor& maxima) = 0;
  // After update(), wherever the tensor is held: its scale is the one that its codes are stored with.
  virtual void take_maximum(const EncodedTensor& weights, const Tensor& next_maximum,
                            const StepControl* control) = 0;

  [[nodiscard]] virtual int64_t norm_table_bytes(const NormCall& call) const = 0;
  virtual void write_norm_table(const NormCall& call, std::byte* image) const = 0;
  // The own tiles' sums of squares; then, when those of all ranks are there, the norm and the
  // clipping factor.
  virtual void sum_gradients(const NormCall& call) = 0;
  virtual void compute_clip(const NormCall& call) = 0;

  // To be called before an update of the same tensor by a rule with factors.
  virtual void project(const ProjectionCall& call) = 0;
  // partial[i], fp64: the sum of squares of the i-th tile of the logical elements; square_sums() tiles.
  virtual void sum_of_squares(const Tensor& tensor, const Tensor& partial) = 0;
  virtual void sum_of_squares(const EncodedTensor& tensor, const Tensor& partial) = 0;
  // Rows of the table of counters for so many update blocks; a row is a UpdateCounters.
  [[nodiscard]] virtual int64_t counter_rows(int64_t blocks) const = 0;
};

// Pieces that sum_of_squares cuts a tensor into; a property of its shape alone, so the sum's order is too.
int64_t square_sums(int64_t rows, int64_t cols);
// What `tiles` of all tensors are added to first, before these are: one group takes too long for all.
int64_t sums_of_tiles(int64_t tiles);

template <>
std::unique_ptr<OptimizerOps> make_cpu_ops(const OptimizerOps::Options&);

}  // namespace mpt
