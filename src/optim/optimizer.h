// The optimizer of a run: its rule, its states and their step over all tensors.
//
// A run makes it with  Optimizer(config.optimizer, optimizer_options(config.precision, config.seed), targets,
// device, allocator).  Pairs of settings that do not go together are errors of the caller here;
// configurations are checked, with better words, where they are resolved.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/named_tensor.h"
#include "core/param_spec.h"
#include "device/device.h"
#include "optim/optimizer_config.h"
#include "optim/rule_factory.h"
#include "optim/survival.h"
#include "optim/update_ops.h"
#include "precision/precision_ops.h"

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
  // All states are planned (or allocated, as zeros) here.
  Optimizer(const OptimizerConfig& config, const OptimizerOptions& options, std::vector<UpdateTarget> targets,
            Device& device, Allocator& allocator);

  // To be called once when the initial weights are in place; not after loading a checkpoint.
  void weights_initialized();
  // To be called after states were loaded from a checkpoint.
  void states_loaded();

  // A step in three calls. prepare() writes what the step's scalars decide to host memory, so work on the
  // step before must be done; measure() and update() enqueue the same work every time. measure() finds the
  // gradients' norm, from FP64 sums in an order that depends on shapes alone, clips by it, and lets update()
  // do nothing if it or one of `losses` (fp64 [1, n]; no rows: none) is not finite.
  void prepare(const StepScalars& scalars);
  void measure(const Tensor& losses);
  void update();
  // What measure() found, after Device::synchronize().
  [[nodiscard]] const StepControl& control() const { return *control_.image<StepControl>(); }

  // measure(), and its norm at once.
  double grad_norm();
  // A step at once, with the scalars' grad_scale.
  void step(const StepScalars& scalars);
  // The same, and what became of the updates, tensor by tensor. Needs Survey::kOnDemand.
  std::vector<Survival> step_surveyed(const StepScalars& scalars);

  // Every state as "<state>/<parameter>", and what else a checkpoint must hold: m, v, v_e as the rule has
  // them; kahan, the residuals; v_r [M, r] and projection [r, d] of Apollo-E; init_rms [1, targets].
  [[nodiscard]] std::vector<NamedTensor> named_states() const;
  // Bytes of the states' logical elements, numbers of which a tensor has one excluded (NUMERICS "Apollo-E").
  [[nodiscard]] int64_t optimizer_state_bytes() const;

  // Another implementation of the operations, such as one that works with many lanes.
  void replace_ops(std::unique_ptr<UpdateOps> ops) { ops_ = std::move(ops); }

 private:
  // Of one target.
  struct States {
    std::vector<RuleState> rule;
    std::vector<Tensor> moments;        // in the order of `rule`
    std::vector<DitherSource> dithers;  // of the step that was prepared
    Tensor residuals;                   // with writeback = kahan
    Tensor second, projection;          // Apollo-E: V [M, r] and P [r, d]
  };

  void check_options() const;
  void check_target(const UpdateTarget& target) const;
  States allocate_states(const UpdateTarget& target, Allocator& allocator) const;
  void allocate_scratch(Allocator& allocator);
  void allocate_survival(Allocator& allocator);
  void allocate_tables(Allocator& allocator);
  [[nodiscard]] std::vector<NamedTensor> states_of_targets() const;

  double sum_of_partials(int64_t count);
  [[nodiscard]] NormCall norm_call(const Tensor& losses) const;
  void control_by(float grad_scale);

  // Updates that are made together, positions in calls_: all that need no preparation, or one that does.
  struct Part {
    size_t first, count;
    int64_t table_offset;
  };
  [[nodiscard]] UpdatesCall updates_of(const Part& part) const;
  void update(const Part& part, const Tensor& survival);
  Survival survey(size_t position);
  Survival read_survival(size_t target, const Tensor& table);

  [[nodiscard]] bool projected(size_t target) const { return states_[target].projection.rows > 0; }
  [[nodiscard]] UpdateCall call_of(size_t target, const StepScalars& scalars);
  void prepare_projection(size_t target, const StepScalars& scalars);
  [[nodiscard]] ProjectionCall projection_of(size_t target) const;
  [[nodiscard]] DitherSource dither(size_t target, int64_t t, Stream stream, Rounding rounding) const;

  OptimizerConfig config_;
  OptimizerOptions options_;
  std::vector<UpdateTarget> targets_;
  Device& device_;
  std::unique_ptr<UpdateOps> ops_;
  std::unique_ptr<PrecisionOps> precision_ops_;  // where a target's weights are scaled
  std::vector<States> states_;
  std::vector<Tensor> gradients_;  // of the targets
  Tensor partial_;                 // [1, pieces of all tensors] fp64
  Tensor init_rms_;                // [1, targets] fp32: RMS of the initial weights
  std::vector<size_t> order_;      // targets as they stand in calls_: projected ones last
  std::vector<UpdateCall> calls_;  // of the step that was prepared
  std::vector<Part> parts_;
  Staged control_;             // StepControl
  Staged update_table_;        // of all parts
  Staged norm_table_;          // of gradients_, written once
  Staged exponent_table_;      // [1, 2 entries] fp32
  Staged projection_scalars_;  // [1, targets] of ProjectionScalars
  ProjectionScratch projection_scratch_;
  MaximumScratch maximum_scratch_;
  Tensor survival_;  // [most rows, bytes of a row] of the largest tensor's counters
  std::vector<std::byte> host_survival_;
  std::vector<double> host_partial_;
  std::vector<float> host_init_rms_;
};

}  // namespace mpt
