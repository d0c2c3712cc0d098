// Device operations of optimizers: gradient norm, update batches, Apollo-E projections. Written
// once over Exec (optimizer_ops_on.h) and instantiated per backend.
#pragma once

#include <memory>
#include <string_view>

#include "core/tensor.h"
#include "device/device.h"
#include "device/ops_registry.h"
#include "optim/apollo_e.h"
#include "optim/gradient_norm.h"
#include "optim/rule_config.h"
#include "optim/update/update_batch.h"
#include "precision/encoded_tensor.h"

namespace mpt {

struct MeanDirectionCall {
  Tensor gradient, mean;  // as stored; the mean is not updated
  OrthogonalizationOptions options;
  StateUpdate state_update = StateUpdate::kOnce;
  const StepControl* control;  // in device memory
  Tensor direction;            // [rows, cols] fp32
};

class OptimizerOps {
 public:
  static constexpr std::string_view kFamily = "optimizer operations";
  struct Options {};

  virtual ~OptimizerOps() = default;
  // Makes a batch of updates by step number `step` of the rule, for weights in this storage. Throws
  // LogicError if the rule has no such step.
  [[nodiscard]] virtual std::unique_ptr<UpdateBatch> make_batch(const RuleConfig& rule, size_t step,
                                                                BatchStorage storage) const = 0;
  // mean, fp32 [1, 1]: mean block scale over all elements of a tensor whose format
  // has_relative_scales(), without the tensor's own scale. sums: fp64 [1, rows] scratch. The sums
  // are exact, so their order does not matter.
  virtual void find_mean_scale(const EncodedTensor& weights, const Tensor& sums,
                               const Tensor& mean) = 0;
  // Decodes the given blocks of a tensor to fp32 [rows, cols]. Other blocks need not exist.
  virtual void copy_weights(const EncodedTensor& weights, BlockRange blocks, const Tensor& to) = 0;
  // Passes of orthogonalization.h, on matrices without padding: compute the direction to be
  // orthogonalized; divide x by (the root of the sum of the squares left by sum_of_squares(), which
  // are overwritten) + 1e-7; x = alpha x + beta y.
  virtual void mean_direction(const MeanDirectionCall& call) = 0;
  virtual void divide_by_norm(const Tensor& x, const Tensor& squares) = 0;
  virtual void combine(const Tensor& x, float alpha, const Tensor& y, float beta) = 0;
  // Sets maxima to 0, the lowest value. Call before UpdateBatch::find_maxima(), which skips tensors
  // whose update blocks are on other ranks.
  virtual void clear_maxima(const Tensor& maxima) = 0;
  // Call after update(), on every rank that holds the tensor. Sets its scale to the one used to
  // store its codes.
  virtual void take_maximum(const EncodedTensor& weights, const Tensor& next_maximum,
                            const StepControl* control) = 0;

  [[nodiscard]] virtual int64_t norm_table_bytes(const NormCall& call) const = 0;
  virtual void write_norm_table(const NormCall& call, std::byte* image) const = 0;
  // sum_gradients() sums the squares of own tiles. compute_clip() computes norm and clipping factor
  // once the tile sums of all ranks are present.
  virtual void sum_gradients(const NormCall& call) = 0;
  virtual void compute_clip(const NormCall& call) = 0;

  // Call before updating the tensor by a rule with factors.
  virtual void project(const ProjectionCall& call) = 0;
  // partial[i], fp64: sum of squares of tile i of the logical elements, for square_sums() tiles.
  virtual void sum_of_squares(const Tensor& tensor, const Tensor& partial) = 0;
  virtual void sum_of_squares(const EncodedTensor& tensor, const Tensor& partial) = 0;
  // Rows of UpdateCounters needed for that many update blocks.
  [[nodiscard]] virtual int64_t counter_rows(int64_t blocks) const = 0;
};

// Number of tiles of a tensor in sum_of_squares(). Depends only on the shape, so the order of the
// sum does too.
int64_t square_sums(int64_t rows, int64_t cols);
// Number of intermediate sums for `tiles` tiles; a single group would take too long to add all
// tiles.
int64_t sums_of_tiles(int64_t tiles);

template <>
std::unique_ptr<OptimizerOps> make_cpu_ops(const OptimizerOps::Options&);

}  // namespace mpt
