// The optimizer of a run: applies the rule's step to all parameters, or to one rank's part of them.
//
// On one rank: Optimizer(config.optimizer, optimizer_options(config.precision, config.seed),
// targets, device, allocator). Contradictory settings throw LogicError here;
// config/config_checks.cpp reports them to users.
//
// With several ranks, each holds the states of its own update blocks, reads their gradients and
// updates their weights; the caller then gathers the weights. Together the ranks' weights and
// states are bit-identical to those of a single optimizer.
//
// Parts of a step have their own classes: OptimizerStates, GradientNorm, ScalePass, Projections.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/named_tensor.h"
#include "core/param_spec.h"
#include "core/tensor.h"
#include "device/device.h"
#include "optim/apollo_e.h"
#include "optim/gradient_norm.h"
#include "optim/optimizer_config.h"
#include "optim/optimizer_states.h"
#include "optim/orthogonalization.h"
#include "optim/scale_pass.h"
#include "optim/update/optimizer_ops.h"
#include "optim/update_statistics.h"
#include "ranks/communicator.h"
#include "ranks/partition.h"

namespace mpt {

// Whether step_with_statistics() may be called.
enum class StepStatistics : uint8_t { kNever, kOnDemand };

// Storage of states, and the seed of all random draws.
struct OptimizerOptions {
  Format state = Format::kBF16;
  Rounding state_rounding = Rounding::kNearest;   // of BF16 states
  StateUpdate state_update = StateUpdate::kOnce;  // of BF16 states
  uint64_t seed = 0;
  StepStatistics statistics = StepStatistics::kNever;
};
OptimizerOptions optimizer_options(const PrecisionConfig& config, uint64_t seed);

class Optimizer {
 public:
  // Where the optimizer runs. The partition covers the targets in order and assigns update blocks
  // to ranks. All but the partition must outlive the optimizer.
  struct Place {
    const Partition& partition;
    Communicator& ranks;
    Device& device;
    Allocator& allocator;
  };
  // Plans all states, or allocates them zeroed.
  Optimizer(const OptimizerConfig& config, const OptimizerOptions& options,
            std::vector<UpdateTarget> targets, const Place& place);
  // Single rank: updates all update blocks.
  Optimizer(const OptimizerConfig& config, const OptimizerOptions& options,
            std::vector<UpdateTarget> targets, Device& device, Allocator& allocator);

  // Call once when all initial weights are in place on every rank; not after loading a checkpoint.
  void weights_initialized();
  // Call after loading states from a checkpoint.
  void states_loaded();

  // A step is four calls, made by all ranks:
  //   prepare()            writes the step's scalars and tables to host memory, so work on the step
  //                        before must be done; the other calls enqueue the same work every time
  //   measure_gradients()  computes the norm of the gradients, from FP64 sums in an order that
  //                        depends on shapes only, and clips by it. If the norm or one of `losses`
  //                        (fp64 [1, n]; no rows: none; the same on all ranks) is not finite, or
  //                        the norm or their sum is beyond set_limits(), update() does nothing
  //   update()             updates own update blocks, and tensor scales that need their maximum
  //   rescale()            call after update(), with whole weights: moves tensor scales that need
  //                        all blocks of a tensor. A second call changes nothing
  void prepare(const StepScalars& scalars);
  // Applies from the next step on. Call before prepare().
  void set_limits(const StepLimits& limits) { norm_.set_limits(limits); }
  void measure_gradients(const Tensor& losses);
  void update();
  void rescale();
  void rescale(size_t target);  // this target only
  // Result of measure_gradients(); valid after Device::synchronize().
  [[nodiscard]] const StepControl& control() const { return norm_.control(); }

  // Calls measure_gradients({}), waits for it and returns the norm.
  double grad_norm();
  // Runs a whole step including rescale(), with the grad_scale of the scalars, and waits for it.
  // Single rank only.
  void step(const StepScalars& scalars);
  // Like step(), but without rescale(), and called by all ranks. Returns update statistics per
  // tensor, summed over ranks. Needs StepStatistics::kOnDemand.
  std::vector<UpdateStatistics> step_with_statistics(const StepScalars& scalars);

  // Every state as "<state>/<parameter>" and everything else a checkpoint must hold: m, v, v_e, if
  // the rule has them; the residuals of weight_rounding; v_r [M, r] and projection [r, d] of
  // Apollo-E; init_rms [1, targets]. Only own elements: the parts saved by all ranks hold every
  // element once. init_rms is saved by rank 0 and loaded by all.
  [[nodiscard]] std::vector<TensorPart> parts_to_save() const;
  [[nodiscard]] std::vector<TensorPart> parts_to_load() const;
  // Like parts_to_save(), for an optimizer that owns all update blocks.
  [[nodiscard]] std::vector<NamedTensor> named_states() const;
  // Bytes of the logical elements of own states, excluding per-tensor scalars (docs/numerics.md
  // "Apollo-E").
  [[nodiscard]] int64_t optimizer_state_bytes() const;
  // Update blocks of a target that this rank updates.
  [[nodiscard]] BlockRange blocks(size_t target) const { return states_[target].blocks; }

  // Replaces the implementation of the operations, for example with one of many lanes.
  void replace_ops(std::unique_ptr<OptimizerOps> ops);

 private:
  // Tensors updated in one pass. A tensor that needs its whole matrix gets its own batch, because
  // such tensors share the memory for their directions.
  struct Batch {
    std::unique_ptr<UpdateBatch> update;
    std::vector<size_t> targets;
    std::vector<TensorSlot> slots;  // one per target, for the prepared step
    int64_t table_offset;
    bool whole;
  };
  // Update counters, [most rows, bytes of a row], sized for the largest tensor.
  struct Counters {
    Tensor on_device;
    std::vector<std::byte> on_host;
  };

  void check_options() const;
  void check_target(size_t index) const;
  [[nodiscard]] std::vector<Tensor> gradients() const;
  [[nodiscard]] Projections::Options projections() const;
  [[nodiscard]] std::vector<MatrixShape> own_orthogonalized() const;
  void allocate_counters(Allocator& allocator);
  void make_batches();
  void allocate_tables(Allocator& allocator);

  [[nodiscard]] std::unique_ptr<UpdateBatch> batch_of(size_t target) const;
  [[nodiscard]] BatchCall call_of(const Batch& batch) const;
  // Calls before(batch) once everything its update reads is ready.
  void update_batches(const std::function<void(const Batch&)>& before);
  // For a tensor that needs its whole matrix. Writes to memory that the next call overwrites.
  void find_directions(size_t target);
  void count_updates(const StepScalars& scalars, const Batch& batch,
                     std::vector<UpdateStatistics>& sums);

  [[nodiscard]] TensorScalars tensor_scalars(size_t target) const;
  [[nodiscard]] BatchStorage storage_of(size_t target) const;
  [[nodiscard]] TensorSlot slot_of(size_t target, int64_t update) const;
  [[nodiscard]] DitherSource dither(size_t target, int64_t update, RandomStream stream,
                                    Rounding rounding) const;

  OptimizerConfig config_;
  OptimizerOptions options_;
  std::vector<UpdateTarget> targets_;
  Communicator& ranks_;
  Device& device_;
  std::unique_ptr<OptimizerOps> ops_;
  OptimizerStates states_;
  GradientNorm norm_;
  ScalePass scales_;
  Projections projections_;
  Orthogonalization orthogonalization_;
  Counters counters_;
  std::vector<Batch> batches_;  // those of one tensor last
  PinnedBuffer update_table_;   // of all batches
  PinnedBuffer rule_table_;     // [1, values] fp32, of rules that read one
};

}  // namespace mpt
