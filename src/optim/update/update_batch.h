// A batch of tensors with the same rule arithmetic and weight format, updated by one launch.
// Created by OptimizerOps::make_batch(), the only place that selects the code to run.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/block_range.h"
#include "core/tensor.h"
#include "optim/rule.h"
#include "optim/update/tensor_inputs.h"
#include "precision/encoded_tensor.h"

namespace mpt {

// Memory that the update of a tensor, or of some of its blocks, reads and writes. States and
// residuals of other blocks need not exist; weights and gradients of other blocks are not accessed.
// take_maximum() writes the scale of a tensor that needs_maximum().
struct TensorSlot {
  EncodedTensor weights;           // updated
  std::span<const Tensor> states;  // in the order of the step's kStates, fp32 or bf16, updated
  std::vector<DitherSource> state_dithers;  // one per state
  StateUpdate state_update = StateUpdate::kOnce;
  Tensor gradient;  // fp32 or bf16
  DitherSource weight_dither{};
  TensorScalars scalars{};
  SharedFactors factors{};  // for steps that take one
  Tensor mean_scale{};  // as left by find_mean_scale(): additive rates are proportional to block
                        // scales; none: one rate for all
  std::optional<BlockRange> blocks{};  // none: all
  Tensor
      next_maximum{};  // where needs_maximum(), fp32 [1, 1]: the amax of the whole tensor's new weights
  Tensor residuals{};  // of weights with kept errors, laid out like the states

  [[nodiscard]] BlockRange range() const {
    return blocks.value_or(all_blocks(weights.rows, weights.cols));
  }
};

// The tensors of one step. Everything that changes between steps (rates, corrections, draws) is
// read from `table` in device memory, so the same calls can be repeated with a different table.
struct BatchCall {
  std::span<const TensorSlot> tensors;
  const std::byte* table;      // written by write_table() for these tensors
  const StepControl* control;  // in device memory
  Tensor
      maxima_of_blocks{};  // fp32 [1, most update blocks of a tensor] scratch, where needs_maximum()
};

class UpdateBatch {
 public:
  virtual ~UpdateBatch() = default;
  // The host writes the table; its layout depends only on the list of tensors.
  [[nodiscard]] virtual int64_t table_bytes(int64_t tensors) const = 0;
  virtual void write_table(const StepScalars& scalars, const BatchCall& call,
                           std::byte* image) const = 0;
  // Computes the amax that the blocks will have after update() into next_maximum of every tensor
  // that needs_maximum(). update() expects the amax of the whole tensor there.
  virtual void find_maxima(const BatchCall& call) const = 0;
  // Updates the tensors, in any order.
  virtual void update(const BatchCall& call) const = 0;
  // Counts the changes that update() of one tensor will make if the step proceeds, into
  // counter_rows() rows of UpdateCounters. Needs the tensor's next_maximum.
  virtual void count(const StepScalars& scalars, const BatchCall& call, size_t tensor,
                     const Tensor& counters) const = 0;
};

// Fate of the rounding errors of a batch's weights: lost; kept in residuals (Kahan, in FP32 or as
// in eager BF16 code; the types of kept_weight.h); returned through the first moment.
enum class RoundingErrors : uint8_t {
  kLost,
  kKahanFused,
  kKahanEager,
  kRemainder,
  kUlpResidual,
  kMaster,
  kFedBack
};
struct BatchStorage {
  WeightFormat format;
  RoundingErrors errors = RoundingErrors::kLost;

  bool operator==(const BatchStorage&) const = default;
};

}  // namespace mpt
