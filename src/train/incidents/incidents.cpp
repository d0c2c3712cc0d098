#include "train/incidents/incidents.h"

#include <cmath>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "core/check.h"

namespace mpt {

bool Incidents::leaves_out_spikes() const {
  return config_.spike_policy != SpikePolicy::kOff && config_.spike_policy != SpikePolicy::kWarn;
}

std::optional<SpikeLimits> Incidents::limits() const {
  return leaves_out_spikes() ? std::optional(spikes_.limits()) : std::nullopt;
}

void Incidents::judge(StepRecord& record) {
  if (!std::isfinite(record.loss) || !std::isfinite(record.grad_norm)) return;
  const bool spike =
      leaves_out_spikes() ? record.skipped : spikes_.stands_out(record.loss, record.grad_norm);
  if (spike) record.spike = spikes_.compare(record.loss, record.grad_norm);
  spikes_.see(record.loss, record.grad_norm);
}

Remedy Incidents::remedy_for(const StepRecord& record) const {
  if (record.spike)
    return config_.spike_policy == SpikePolicy::kRollback ? Remedy::kRollBack
           : config_.spike_policy == SpikePolicy::kStop   ? Remedy::kStop
                                                          : Remedy::kContinue;
  if (!record.skipped || config_.nonfinite_policy == NonfinitePolicy::kSkipStep)
    return Remedy::kContinue;
  return config_.nonfinite_policy == NonfinitePolicy::kRollback ? Remedy::kRollBack : Remedy::kStop;
}

bool Incidents::ruins_the_run(const StepRecord& record) {
  nonfinite_ = record.skipped && !record.spike ? nonfinite_ + 1 : 0;
  return nonfinite_ >= config_.max_skipped_steps &&
         config_.nonfinite_policy == NonfinitePolicy::kSkipStep;
}

void Incidents::begin_rollback(const StepRecord& record) {
  if (++rollbacks_ > config_.max_rollbacks)
    throw error(
        "{}, after {} rollbacks without a new checkpoint (train.max_rollbacks). Saved checkpoints "
        "are untouched",
        trouble_of(record), config_.max_rollbacks);
}

void Incidents::warn_of_frozen_scales(int64_t step, std::span<const Fp8OperandState> states) {
  int64_t frozen = 0;
  std::string worst;
  for (const auto& [name, state] : states) {
    if (state.frozen > 0 && worst.empty()) worst = name;
    frozen += state.frozen;
  }
  if (frozen > frozen_)
    spdlog::warn(
        "step {}: {} updates of FP8 scales had no effect because an amax was infinite, first in {}",
        step, frozen - frozen_, worst);
  frozen_ = frozen;
}

std::string trouble_of(const StepRecord& record) {
  if (!record.spike)
    return fmt::format("step {}: loss {} or gradient norm {} is not finite", record.step,
                       record.loss, record.grad_norm);
  return fmt::format("step {}: a spike: loss {:.4f}, gradient norm {:.4g}; {}", record.step,
                     record.loss, record.grad_norm, record.spike->text());
}

const char* policy_key(const StepRecord& record) {
  return record.spike ? "train.spike_policy" : "train.nonfinite_policy";
}

}  // namespace mpt
