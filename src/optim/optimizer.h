// The optimizer of a run: its rule, its states and their step over all tensors, or over one rank's part of
// them.
//
// One rank makes it with  Optimizer(config.optimizer, optimizer_options(config.precision, config.seed),
// targets, device, allocator).  Pairs of settings that do not go together are errors of the caller here;
// configurations are checked, with better words, where they are resolved.
//
// As one rank of several it has the states of its own units only and updates no others: of gradients it reads
// the own units, and the weights are whole again when the caller has gathered them. All ranks' weights and
// states together are the bits that one optimizer alone would give.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/param_spec.h"
#include "core/tensor.h"
#include "device/device.h"
#include "optim/optimizer_config.h"
#include "optim/piece_map.h"
#include "optim/rule_list.h"
#include "optim/survival.h"
#include "optim/update_ops.h"
#include "precision/partition.h"
#include "precision/precision_ops.h"
#include "precision/weight_formats.h"

namespace mpt {

// A parameter as the optimizer sees it: logical views of its weights and gradient.
struct UpdateTarget {
  std::string name;
  ParamKind kind;
  uint32_t tensor_id;  // of random counters
  EncodedTensor weights;
  Tensor gradient;
};

// Whether a step may be asked what becomes of its updates.
enum class Survey : uint8_t { kNever, kOnDemand };

// How states are stored, and the seed of all random draws.
struct OptimizerOptions {
  Format state = Format::kBF16;
  Rounding state_rounding = Rounding::kNearest;   // of BF16 states
  StateUpdate state_update = StateUpdate::kOnce;  // of BF16 states
  uint64_t seed = 0;
  Survey survey = Survey::kNever;
};
OptimizerOptions optimizer_options(const PrecisionConfig& config, uint64_t seed);

class Optimizer {
 public:
  // Which units are updated here, and where: those that the partition of the targets, in their order, gives
  // to this rank. All but the partition outlive the optimizer.
  struct Place {
    const Partition& partition;
    Communicator& ranks;
    Device& device;
    Allocator& allocator;
  };
  // All states are planned (or allocated, as zeros) here.
  Optimizer(const OptimizerConfig& config, const OptimizerOptions& options, std::vector<UpdateTarget> targets,
            const Place& place);
  // Of one rank, which updates all units.
  Optimizer(const OptimizerConfig& config, const OptimizerOptions& options, std::vector<UpdateTarget> targets,
            Device& device, Allocator& allocator);

  // To be called once when the initial weights are in place, all of them on every rank; not after loading a
  // checkpoint.
  void weights_initialized();
  // To be called after states were loaded from a checkpoint.
  void states_loaded();

  // A step in four calls, by all ranks. prepare() writes what the step's scalars decide to host memory, so
  // work on the step before must be done; the others enqueue the same work every time. measure() finds the
  // gradients' norm, from FP64 sums in an order that depends on shapes alone, clips by it, and lets update()
  // do nothing if it or one of `losses` (fp64 [1, n]; no rows: none; the same on all ranks) is not finite.
  // update() changes the own units and the tensors' scales that need their maximum. settle() belongs behind
  // it, when the weights are whole: it moves scales that one rank cannot judge alone. It changes nothing the
  // second time.
  void prepare(const StepScalars& scalars);
  void measure(const Tensor& losses);
  void update();
  void settle();
  void settle(size_t target);  // that one alone
  // What measure() found, after Device::synchronize().
  [[nodiscard]] const StepControl& control() const { return *control_.image<StepControl>(); }

  // measure(), and its norm at once.
  double grad_norm();
  // A step at once, settled, with the scalars' grad_scale; for one rank.
  void step(const StepScalars& scalars);
  // The same but for settle(), by all ranks, and what became of the updates of all of them, tensor by tensor.
  // Needs Survey::kOnDemand.
  std::vector<Survival> step_surveyed(const StepScalars& scalars);

  // Every state as "<state>/<parameter>", and what else a checkpoint must hold: m, v, v_e as the rule has
  // them; kahan, the residuals; v_r [M, r] and projection [r, d] of Apollo-E; init_rms [1, targets]. The own
  // elements of each: what all ranks save is every element once. init_rms is saved by rank 0 and loaded by
  // all.
  [[nodiscard]] std::vector<TensorPart> parts_to_save() const;
  [[nodiscard]] std::vector<TensorPart> parts_to_load() const;
  // The same of an optimizer that has all units.
  [[nodiscard]] std::vector<NamedTensor> named_states() const;
  // Bytes of the own states' logical elements, numbers of which a tensor has one excluded
  // (docs/numerics.md "Apollo-E").
  [[nodiscard]] int64_t optimizer_state_bytes() const;
  // The units of a target that are updated here.
  [[nodiscard]] UnitRange units(size_t target) const { return units_[target]; }

  // Another implementation of the operations, such as one that works with many lanes.
  void replace_ops(std::unique_ptr<UpdateOps> ops);

 private:
  // Of one target; without memory where another rank has all of its units.
  struct States {
    std::span<const StateInfo> infos;
    std::vector<Tensor> moments;        // in the order of `infos`
    std::vector<DitherSource> dithers;  // of the step that was prepared
    Tensor residuals;                   // with writeback = kahan
    Tensor second, projection;          // Apollo-E: V [M, r] and P [r, d]
  };

  void check_options() const;
  void check_partition(const Partition& partition) const;
  void check_target(size_t index) const;
  [[nodiscard]] States allocate_states(size_t index, Allocator& allocator) const;
  void allocate_scratch(Allocator& allocator);
  void allocate_survival(Allocator& allocator);
  void allocate_tables(Allocator& allocator);
  [[nodiscard]] std::vector<TensorPart> states_of_targets() const;

  double sum_of_partials(int64_t count);
  [[nodiscard]] NormCall norm_call(const Tensor& losses) const;
  void control_by(float grad_scale);

  // Updates that are made in one pass: positions in slots_. One that must be projected is alone.
  struct Part {
    std::unique_ptr<UpdateBatch> batch;
    size_t first, count;
    int64_t table_offset;
    bool projected;
  };
  [[nodiscard]] BatchCall call_of(const Part& part) const;
  void make_parts();
  // before(part) when all is there that its update reads.
  void update_parts(const std::function<void(const Part&)>& before);
  void find_maxima(const Part& part);
  void survey(const StepScalars& scalars, const Part& part, std::vector<Survival>& sums);

  [[nodiscard]] bool projected(size_t target) const { return states_[target].projection.rows > 0; }
  [[nodiscard]] bool has_block_rates(size_t target) const {
    const AdditiveConfig* const additive = additive_of(config_.rule);
    return additive != nullptr && additive->nvfp4_additive_scale == Nvfp4AdditiveScale::kBlock &&
           !units_[target].empty() && has_relative_scales(targets_[target].weights.encoding.format);
  }
  [[nodiscard]] TensorScalars tensor_scalars(size_t target) const;
  [[nodiscard]] BatchStorage storage_of(size_t target) const;
  [[nodiscard]] TensorSlot slot_of(size_t target, int64_t t);
  void prepare_projection(size_t target, const StepScalars& scalars);
  [[nodiscard]] ProjectionCall projection_of(size_t target) const;
  [[nodiscard]] DitherSource dither(size_t target, int64_t t, RandomStream stream, Rounding rounding) const;

  OptimizerConfig config_;
  std::optional<ProjectionOptions> projection_;  // as the rule says
  OptimizerOptions options_;
  std::vector<UpdateTarget> targets_;
  Communicator& ranks_;
  PieceMap pieces_;
  std::vector<UnitRange> units_;  // of the targets
  Device& device_;
  std::unique_ptr<UpdateOps> ops_;
  std::unique_ptr<PrecisionOps> precision_ops_;  // where a target's weights are scaled
  std::vector<States> states_;
  std::vector<Tensor> gradients_;      // of the targets
  Tensor partial_;                     // [1, pieces of all tensors] fp64
  std::vector<Tensor> partial_parts_;  // of the ranks
  Tensor sums_;                        // [1, sums of pieces] fp64
  Tensor init_rms_;                    // [1, targets] fp32: RMS of the initial weights
  std::vector<size_t> order_;          // own targets as they stand in slots_: part by part
  std::vector<TensorSlot> slots_;      // of the step that was prepared
  std::vector<Part> parts_;            // projected ones last
  Tensor unit_maxima_;                 // [1, units] fp32, of the largest part of a live tensor
  Tensor next_maxima_;                 // [1, live tensors] fp32
  std::vector<size_t> live_;           // targets whose format needs_maximum()
  std::vector<size_t> block_rates_;    // own targets whose additive rates follow their blocks' scales
  Tensor mean_scales_;                 // [1, those] fp32
  Tensor scale_sums_;                  // [1, most rows of them] fp64
  Staged control_;                     // StepControl
  Staged update_table_;                // of all parts
  Staged norm_table_;                  // of gradients_, written once
  Staged rule_table_;                  // [1, values] fp32, of rules that read one
  Staged projection_scalars_;          // [1, targets] of ProjectionScalars
  ProjectionScratch projection_scratch_;
  Tensor survival_;  // [most rows, bytes of a row] of the largest tensor's counters
  std::vector<std::byte> host_survival_;
  std::vector<double> host_partial_;
  std::vector<float> host_init_rms_;
};

}  // namespace mpt
