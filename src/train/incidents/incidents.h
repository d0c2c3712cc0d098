// Detects incidents in a step, such as a loss or gradient that is not finite, a spike or frozen FP8
// scales, and returns the action that the config asks for.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "config/run_config.h"
#include "model/linears.h"
#include "train/incidents/spike_guard.h"
#include "train/reports/run_logger.h"

namespace mpt {

enum class Remedy : uint8_t { kContinue, kRollBack, kStop };

class Incidents {
 public:
  // `config` must outlive this object.
  explicit Incidents(const TrainConfig& config) : config_(config), spikes_(config) {}

  // Returns the limits of the next step if the device is to drop the update of a spike.
  [[nodiscard]] std::optional<SpikeLimits> limits() const;
  // Completes the record of a step: whether it was a spike. If updates of spikes are dropped, the
  // device has decided that.
  void judge(StepRecord& record);

  [[nodiscard]] Remedy remedy_for(const StepRecord& record) const;
  // Counts consecutive steps that are not finite; with weights that are not finite, or too large,
  // every step is such a step. Returns whether this one is the train.max_skipped_steps-th.
  [[nodiscard]] bool ruins_the_run(const StepRecord& record);
  // Within such a row the weights may be ruined, so the checkpoint before it must be kept.
  [[nodiscard]] int64_t nonfinite_in_a_row() const { return nonfinite_; }

  // Throws Error after train.max_rollbacks rollbacks since the last saved checkpoint.
  void begin_rollback(const StepRecord& record);
  void saved() { rollbacks_ = 0; }

  // An infinite amax freezes a delayed scale until it leaves the history: warns of newly frozen
  // ones.
  void warn_of_frozen_scales(int64_t step, std::span<const Fp8OperandState> states);

  // Losses and norms that later ones are compared with, to be saved in a checkpoint.
  [[nodiscard]] const SpikeGuard& spikes() const { return spikes_; }
  void restore_spikes(const nlohmann::json& saved, const std::string& place) {
    spikes_.restore(saved, place);
  }

 private:
  [[nodiscard]] bool leaves_out_spikes() const;

  const TrainConfig& config_;
  SpikeGuard spikes_;
  int64_t rollbacks_ = 0;  // since the last saved checkpoint
  int64_t nonfinite_ = 0;  // steps in a row that were not finite
  int64_t frozen_ = 0;     // ineffective updates of FP8 scales already warned of
};

// Returns "step 7: loss nan or gradient norm inf is not finite"; for a spike, the outlier.
std::string trouble_of(const StepRecord& record);
// Returns the config key of the policy that applies.
const char* policy_key(const StepRecord& record);

}  // namespace mpt
