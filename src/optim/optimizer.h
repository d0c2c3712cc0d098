// The optimizer of a run: its rule and the step of it over all parameters, or over one rank's part of them.
//
// On one rank: Optimizer(config.optimizer, optimizer_options(config.precision, config.seed), targets, device,
// allocator). Settings that exclude each other are errors of the caller here; run_config_checks words them
// for users.
//
// One rank of several holds states for its own update blocks, reads gradients of those and updates those; the
// weights are whole again when the caller has gathered them. All ranks' weights and states together are the
// bits that a single optimizer gives.
//
// The concerns of a step have classes of their own: OptimizerStates, GradientNorm, ScalePass, Projections.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/partition.h"
#include "core/param_spec.h"
#include "core/tensor.h"
#include "device/device.h"
#include "optim/apollo_e.h"
#include "optim/gradient_norm.h"
#include "optim/optimizer_config.h"
#include "optim/optimizer_states.h"
#include "optim/scale_pass.h"
#include "optim/update/optimizer_ops.h"
#include "optim/update_statistics.h"

namespace mpt {

// Whether a step may be asked for statistics of its updates.
enum class StepStatistics : uint8_t { kNever, kOnDemand };

// How states are stored, and the seed of all random draws.
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
  // Which update blocks are updated here, and where: those that the partition of the targets, in their order,
  // gives to this rank. All but the partition outlive the optimizer.
  struct Place {
    const Partition& partition;
    Communicator& ranks;
    Device& device;
    Allocator& allocator;
  };
  // All states are planned (or allocated, as zeros) here.
  Optimizer(const OptimizerConfig& config, const OptimizerOptions& options, std::vector<UpdateTarget> targets,
            const Place& place);
  // Of one rank, which updates all update blocks.
  Optimizer(const OptimizerConfig& config, const OptimizerOptions& options, std::vector<UpdateTarget> targets,
            Device& device, Allocator& allocator);

  // To be called once when the initial weights are in place, all of them on every rank; not after loading a
  // checkpoint.
  void weights_initialized();
  // To be called after states were loaded from a checkpoint.
  void states_loaded();

  // A step in four calls, by all ranks. prepare() writes what the step's scalars decide to host memory, so
  // work on the step before must be done; the others enqueue the same work every time. measure_gradients()
  // finds the gradients' norm, from FP64 sums in an order that depends on shapes alone, clips by it, and lets
  // update() do nothing if it or one of `losses` (fp64 [1, n]; no rows: none; the same on all ranks) is not
  // finite. update() changes the own update blocks and the tensors' scales that need their maximum. rescale()
  // belongs behind it, when the weights are whole: it moves scales that need all blocks of a tensor. It
  // changes nothing the second time.
  void prepare(const StepScalars& scalars);
  void measure_gradients(const Tensor& losses);
  void update();
  void rescale();
  void rescale(size_t target);  // that one alone
  // What measure_gradients() found, after Device::synchronize().
  [[nodiscard]] const StepControl& control() const { return norm_.control(); }

  // measure_gradients(), and its norm at once.
  double grad_norm();
  // A step at once, rescaled, with the scalars' grad_scale; for one rank.
  void step(const StepScalars& scalars);
  // The same but for rescale(), by all ranks, and what became of the updates of all of them, tensor by
  // tensor. Needs StepStatistics::kOnDemand.
  std::vector<UpdateStatistics> step_with_statistics(const StepScalars& scalars);

  // Every state as "<state>/<parameter>", and what else a checkpoint must hold: m, v, v_e as the rule has
  // them; kahan, the residuals; v_r [M, r] and projection [r, d] of Apollo-E; init_rms [1, targets]. The own
  // elements of each: what all ranks save is every element once. init_rms is saved by rank 0 and loaded by
  // all.
  [[nodiscard]] std::vector<TensorPart> parts_to_save() const;
  [[nodiscard]] std::vector<TensorPart> parts_to_load() const;
  // The same of an optimizer that has all update blocks.
  [[nodiscard]] std::vector<NamedTensor> named_states() const;
  // Bytes of the own states' logical elements, numbers of which a tensor has one excluded
  // (docs/numerics.md "Apollo-E").
  [[nodiscard]] int64_t optimizer_state_bytes() const;
  // The update blocks of a target that are updated here.
  [[nodiscard]] BlockRange blocks(size_t target) const { return states_[target].blocks; }

  // Another implementation of the operations, such as one that works with many lanes.
  void replace_ops(std::unique_ptr<OptimizerOps> ops);

 private:
  // Tensors that are updated in one pass; one that must be projected has a batch of its own, because
  // projected tensors take turns to use the memory of their factors.
  struct Batch {
    std::unique_ptr<UpdateBatch> update;
    std::vector<size_t> targets;
    std::vector<TensorSlot> slots;  // of the targets, for the step that was prepared
    int64_t table_offset;
    bool projected;
  };
  // Counts of what becomes of updates, [most rows, bytes of a row] of the largest tensor.
  struct Counters {
    Tensor on_device;
    std::vector<std::byte> on_host;
  };

  void check_options() const;
  void check_target(size_t index) const;
  [[nodiscard]] std::vector<Tensor> gradients() const;
  [[nodiscard]] Projections::Options projections() const;
  void allocate_counters(Allocator& allocator);
  void make_batches();
  void allocate_tables(Allocator& allocator);

  [[nodiscard]] std::unique_ptr<UpdateBatch> batch_of(size_t target) const;
  [[nodiscard]] BatchCall call_of(const Batch& batch) const;
  // before(batch) when everything is there that its update reads.
  void update_batches(const std::function<void(const Batch&)>& before);
  void project(size_t target);
  void count_updates(const StepScalars& scalars, const Batch& batch, std::vector<UpdateStatistics>& sums);

  [[nodiscard]] TensorScalars tensor_scalars(size_t target) const;
  [[nodiscard]] BatchStorage storage_of(size_t target) const;
  [[nodiscard]] TensorSlot slot_of(size_t target, int64_t t) const;
  [[nodiscard]] DitherSource dither(size_t target, int64_t t, RandomStream stream, Rounding rounding) const;

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
  Counters counters_;
  std::vector<Batch> batches_;  // projected ones last
  PinnedBuffer update_table_;   // of all batches
  PinnedBuffer rule_table_;     // [1, values] fp32, of rules that read one
};

}  // namespace mpt
