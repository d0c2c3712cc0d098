#include "train/step/step.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <vector>

#include "core/check.h"
#include "core/progress.h"
#include "optim/schedule.h"
#include "train/stop_signal.h"

namespace mpt {

TrainStep::TrainStep(const Of& of, int64_t total_steps, int64_t last_step)
    : of_(of),
      total_steps_(total_steps),
      last_step_(last_step),
      work_(of.model, batch_plan(of.config.batch, of.ranks.rank(), of.ranks.size()), of.device) {}

Batch TrainStep::next_batch() {
  const ProfileScope scope(of_.device, "data");
  return of_.data.loader().next();
}

void TrainStep::await_batch() {
  const Batch& batch = of_.data.loader().peek();
  if (batch.valid_targets == 0)
    throw error("step {}: sequences {} to {} of the training data have no token to predict",
                of_.state.step + 1, batch.first_sequence, batch.first_sequence + batch.rows - 1);
}

std::optional<StepRecord> TrainStep::run(RunLogger* logger) {
  std::optional<StepRecord> record = run_of_this_rank(logger);
  if (record) exchange_status(*record);
  return record;
}

// The host waits for the device once, at the end: inputs are written beforehand, and the device
// decides whether to update. The end of a step awaits the data of the next, so that all ranks learn
// in time if one cannot read it.
std::optional<StepRecord> TrainStep::run_of_this_rank(RunLogger* logger) {
  const ProfileScope scope(of_.device, "step");
  StopSignal::stops(stop_point());
  const auto start = std::chrono::steady_clock::now();
  RunState& state = of_.state;
  const int64_t cursor = of_.data.loader().cursor(), tokens = state.tokens;
  const Batch batch = next_batch();
  ++state.step;
  state.tokens += batch.valid_targets;
  StepRecord record{.step = state.step, .tokens = state.tokens, .step_tokens = batch.valid_targets};
  record.data_hash = batch.hash;
  record.lr_factor = schedule_factor(of_.config.schedule, state.step, total_steps_);
  stage(batch);
  if (!enqueue(record, logger)) {
    --state.step;
    state.tokens = tokens;
    of_.data.loader().seek(cursor);
    return std::nullopt;
  }
  of_.model.follow_weights(state.step);
  of_.device.synchronize();
  const StepControl& control = of_.model.optimizer.control();
  record.loss = work_.loss() / double(batch.valid_targets);
  record.grad_norm = control.grad_norm;
  record.skipped = control.proceed == 0;
  if (record.skipped) ++state.skipped;
  of_.incidents.judge(record);
  if (state.step < last_step_) {
    const ProfileScope data(of_.device, "data");
    of_.failure.attempt([&] { await_batch(); });
  }
  record.seconds = seconds_since(start);
  return record;
}

StopPoint TrainStep::stop_point() const {
  if (!work_.can_be_left()) return StopPoint::kAfterStep;
  return of_.state.step == 0 ? StopPoint::kWithinFirstStep : StopPoint::kWithinStep;
}

// Stages the device's inputs: the batch, and the limits above which it drops the update of a spike.
void TrainStep::stage(const Batch& batch) {
  of_.model.llama.stage({batch.tokens, batch.targets, batch.document_begin},
                        float(1.0 / double(batch.valid_targets)));
  if (const std::optional<SpikeLimits> most = of_.incidents.limits())
    of_.model.optimizer.set_limits(
        {.grad_norm = most->grad_norm, .loss_sum = most->loss * double(batch.valid_targets)});
}

// Bias correction counts updates made; the schedule counts steps. During a save, the host must wait
// before the update until the state has been read. prepare() comes after that wait, since it may
// change saved state (projections of Apollo-E).
bool TrainStep::enqueue(StepRecord& record, RunLogger* logger) {
  const StepScalars scalars{.t = of_.state.updates(),
                            .earlier = of_.state.earlier_updates,
                            .lr_factor = record.lr_factor};
  if (!work_.can_be_left() && !counts_updates() && !of_.checkpoints.busy()) {
    of_.model.optimizer.prepare(scalars);
    work_.enqueue();
    return true;
  }
  if (!try_gradients(logger)) return false;
  if (counts_updates()) of_.device.synchronize();
  of_.checkpoints.before_update();
  if (counts_updates()) {
    update_with_statistics(record, scalars);
  } else {
    of_.model.optimizer.prepare(scalars);
    work_.enqueue_update();
  }
  return true;
}

bool TrainStep::try_gradients(RunLogger* logger) {
  if (!work_.can_be_left()) {
    work_.enqueue_gradients();
    return true;
  }
  DeviceStep::Attempt attempt{.seconds_of_last = seconds_};
  if (logger != nullptr)
    attempt.begins = [&](int64_t i, int64_t of) {
      logger->micro_batch_begins(of_.state.step, i, of);
    };
  return work_.try_gradients(attempt);
}

bool TrainStep::counts_updates() const {
  const int64_t every = of_.config.log.update_statistics;
  return every > 0 && of_.state.step % every == 0;
}

void TrainStep::update_with_statistics(StepRecord& record, StepScalars scalars) {
  const StepControl control = of_.model.optimizer.control();
  scalars.grad_scale = control.grad_scale;
  if (control.proceed != 0) {
    record.update_statistics = of_.model.optimizer.step_with_statistics(scalars);
    record.fp8 = of_.model.llama.fp8_states();
  }
  work_.finish_update();
}

struct TrainStep::Status {
  int64_t stops;  // a signal, or a failure
  uint64_t data_hash;
  double seconds;
};

void TrainStep::exchange_status(StepRecord& record) {
  const bool stops = StopSignal::received() != 0 || of_.failure.any();
  const Status mine{stops ? 1 : 0, record.data_hash, record.seconds};
  std::vector<Status> all(static_cast<size_t>(of_.ranks.size()));
  of_.ranks.gather_host(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  record.data_hash = 0;
  seconds_ = 0;
  for (const Status& status : all) {
    if (status.stops != 0) of_.failure.stop();
    record.data_hash += status.data_hash;
    seconds_ = std::max(seconds_, status.seconds);
  }
}

}  // namespace mpt
