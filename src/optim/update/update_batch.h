// A batch of tensors that share a rule's arithmetic and a weight format, updated by one launch. Made by
// OptimizerOps::make_batch(), the one place that decides which code runs.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/blocks.h"
#include "core/tensor.h"
#include "optim/rule.h"
#include "optim/update/tensor_inputs.h"
#include "precision/encoded_tensor.h"

namespace mpt {

// The memory that the update of one tensor, or of some of its blocks, reads and writes. States and residuals
// of other blocks need not exist; weights and gradients of other blocks are not touched. The scale of a
// tensor that needs_maximum() is written by take_maximum().
struct TensorSlot {
  EncodedTensor weights;                    // updated
  std::span<const Tensor> states;           // in the order of the step's kStates, fp32 or bf16, updated
  std::vector<DitherSource> state_dithers;  // as many
  StateUpdate state_update = StateUpdate::kOnce;
  Tensor gradient;  // fp32 or bf16
  DitherSource weight_dither{};
  TensorScalars scalars{};
  SharedFactors factors{};  // of steps that take one
  Tensor mean_scale{};      // as find_mean_scale() left it: additive rates in proportion to the blocks'
                            // scales; none: one rate for all
  std::optional<BlockRange> blocks{};  // none: all
  Tensor next_maximum{};  // where needs_maximum(), fp32 [1, 1]: the amax of the whole tensor's new weights
  Tensor residuals{};     // of compensated weights: bf16, as the weights are

  [[nodiscard]] BlockRange range() const { return blocks.value_or(all_blocks(weights.rows, weights.cols)); }
};

// The tensors of one step. What differs from step to step (rates, corrections, draws) is read from `table`,
// in device memory, so that the same calls can be made again with another table.
struct BatchCall {
  std::span<const TensorSlot> tensors;
  const std::byte* table;      // as write_table() wrote it for these tensors
  const StepControl* control;  // in device memory
  Tensor maxima_of_blocks{};   // fp32 [1, most update blocks of a tensor] scratch, where needs_maximum()
};

class UpdateBatch {
 public:
  virtual ~UpdateBatch() = default;
  // The table is written on the host; its layout depends on the list of tensors alone.
  [[nodiscard]] virtual int64_t table_bytes(int64_t tensors) const = 0;
  virtual void write_table(const StepScalars& scalars, const BatchCall& call, std::byte* image) const = 0;
  // Finds the amax that the blocks would have after update(), into next_maximum of every tensor that
  // needs_maximum(); update() reads the amax of the whole tensor there.
  virtual void find_maxima(const BatchCall& call) const = 0;
  // In any order.
  virtual void update(const BatchCall& call) const = 0;
  // Counts what update() of one of the tensors will change, if the step proceeds, into counter_rows() of
  // UpdateCounters. Its next_maximum must be there.
  virtual void count(const StepScalars& scalars, const BatchCall& call, size_t tensor,
                     const Tensor& counters) const = 0;
};

// How the weights of a batch are stored. Compensated: bf16 with residuals, by the rule's update in FP32 or
// as eager BF16 code has it.
enum class Compensation : uint8_t { kNone, kFused, kEager };
struct BatchStorage {
  WeightFormat format;
  Compensation compensation = Compensation::kNone;

  bool operator==(const BatchStorage&) const = default;
};

}  // namespace mpt
