#include "train/trainer.h"

#include <chrono>

#include <spdlog/spdlog.h>

#include "core/check.h"
#include "optim/schedule.h"
#include "train/resume_check.h"
#include "train/run_data.h"
#include "train/stop_signal.h"
#include "train/throughput.h"

namespace mpt {

std::string run_directory(const RunConfig& config) { return config.output_dir + "/" + config.name; }
std::string checkpoint_directory(const RunConfig& config) { return run_directory(config) + "/checkpoints"; }
std::string metrics_path(const RunConfig& config) { return run_directory(config) + "/metrics.jsonl"; }

Trainer::Trainer(const RunConfig& config, Device& device, FileSystem& fs)
    : config_(config),
      device_(device),
      fs_(fs),
      total_steps_(total_steps(config)),
      train_data_(open_training_data(config)),
      validation_data_(open_validation_data(config)),
      allocator_(device.make_allocator()),
      model_(config, device, *allocator_),
      loader_(train_data_, {.rows_per_batch = config.batch.rows_per_step(),
                            .prefetch_batches = config.data.prefetch_steps,
                            .first_sequence = 0}),
      checkpoints_(
          fs, checkpoint_directory(config),
          {.keep_last = config.checkpoint.keep_last, .keep_every_steps = config.checkpoint.keep_every_steps}),
      work_(model_, config.batch.micro_batches(), device) {}

void Trainer::initialize() {
  initialize_weights(model_.weights, config_.model.initializer_range, config_.seed, device_);
  model_.llama.weights_changed();
  model_.optimizer.weights_initialized();
}

void Trainer::resume(const std::string& checkpoint) {
  const TrainState preview = checkpoints_.read_state(checkpoint);
  check_resumable(preview, checkpoint, config_, *train_data_);
  const TrainState saved = checkpoints_.load(checkpoint, model_.named_tensors(), device_);
  restore_products(saved, checkpoint, device_);
  model_.weights_changed();
  model_.optimizer.states_loaded();
  step_ = last_saved_ = saved.step;
  tokens_ = saved.tokens;
  skipped_ = saved_count(saved, checkpoint, "skipped_steps");
  loader_.seek(saved.cursor);
}

// --- one step
// ------------------------------------------------------------------------------------------------

// The host waits for the device once, at the end: what a step needs is written before, and whether it is an
// update at all is decided on the device.
StepRecord Trainer::step() {
  const auto start = std::chrono::steady_clock::now();
  const Batch batch = loader_.next();
  ++step_;
  tokens_ += batch.valid_targets;
  StepRecord record{.step = step_, .tokens = tokens_, .step_tokens = batch.valid_targets};
  const double factor = schedule_factor(config_.schedule, step_, total_steps_);
  record.lr_additive = factor * config_.optimizer.lr_additive;
  record.lr_multiplicative = factor * config_.optimizer.lr_multiplicative;
  stage(batch);
  if (surveyed()) {
    work_.enqueue_gradients();
    device_.synchronize();
    update_surveyed(record, scalars_of(record));
  } else {
    model_.optimizer.prepare(scalars_of(record));
    work_.enqueue();
  }
  device_.synchronize();
  const StepControl& control = model_.optimizer.control();
  record.loss = model_.llama.loss() / double(batch.valid_targets);
  record.grad_norm = control.grad_norm;
  record.skipped = control.proceed == 0;
  if (record.skipped) ++skipped_;
  record.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return record;
}

void Trainer::stage(const Batch& batch) {
  if (batch.valid_targets == 0)
    throw error("step {}: sequences {} to {} of the training data have no token to predict", step_,
                batch.first_sequence, batch.first_sequence + batch.rows - 1);
  model_.llama.stage({batch.tokens, batch.targets}, float(1.0 / double(batch.valid_targets)));
}

// Bias correction counts the updates that were made, the schedule counts steps.
StepScalars Trainer::scalars_of(const StepRecord& record) const {
  return {.t = step_ - skipped_,
          .lr_additive = record.lr_additive,
          .lr_multiplicative = record.lr_multiplicative};
}

bool Trainer::surveyed() const {
  const int64_t every = config_.log.update_survival;
  return every > 0 && step_ % every == 0;
}

void Trainer::update_surveyed(StepRecord& record, StepScalars scalars) {
  const StepControl control = model_.optimizer.control();
  scalars.grad_scale = control.grad_scale;
  if (control.proceed != 0) {
    record.survival = model_.optimizer.step_surveyed(scalars);
    model_.optimizer.settle();
    record.fp8 = model_.llama.fp8_states();
  }
  model_.weights_changed();
}

// An infinite amax keeps a delayed scale as it is until it leaves the history.
void Trainer::warn_of_frozen_scales() {
  int64_t frozen = 0;
  std::string worst;
  for (const auto& [name, state] : model_.llama.fp8_states()) {
    if (state.frozen > 0 && worst.empty()) worst = name;
    frozen += state.frozen;
  }
  if (frozen > frozen_)
    spdlog::warn("step {}: {} updates of FP8 scales had no effect because an amax was infinite, first in {}",
                 step_, frozen - frozen_, worst);
  frozen_ = frozen;
}

void Trainer::evaluate_into(StepRecord& record) {
  record.validation =
      evaluate(model_.llama, *validation_data_,
               {.rows_per_batch = config_.batch.rows_per_micro_batch(), .tokens = config_.eval.tokens});
}

// --- the run
// -------------------------------------------------------------------------------------------------

bool Trainer::due(int64_t every_steps) const {
  return step_ == total_steps_ || (every_steps > 0 && step_ % every_steps == 0);
}

TrainState Trainer::state() const {
  return {.step = step_,
          .cursor = loader_.cursor(),
          .seed = config_.seed,
          .config = resolved_json(config_),
          .extra = {{"skipped_steps", skipped_},
                    {"data_tokens", train_data_->tokens()},
                    {"products", products_json(device_)}},
          .tokens = tokens_};
}

void Trainer::save() {
  if (last_saved_ == step_) return;
  warn_of_frozen_scales();
  checkpoints_.save(state(), model_.named_tensors(), device_);
  last_saved_ = step_;
  spdlog::info("step {:>6}/{} | saved {}", step_, total_steps_, checkpoint_directory(config_));
}

bool Trainer::run(double product_rate) {
  const bool continued = fs_.exists(metrics_path(config_));
  MetricsLog metrics(fs_, metrics_path(config_));
  if (continued) metrics.mark_resume(step_);
  const StopSignal stop;
  StepLog log(config_,
              {.first_step = step_,
               .total_steps = total_steps_,
               .flops_per_token = flops_per_token(config_.model, config_.batch.seq_len),
               .product_rate = product_rate},
              metrics);
  while (step_ < total_steps_ && StopSignal::received() == 0) {
    StepRecord record = step();
    if (validation_data_ && due(config_.eval.every_steps)) evaluate_into(record);
    log.record(record);
    if (record.skipped && config_.train.nonfinite_policy == NonfinitePolicy::kStop)
      throw error(
          "step {}: loss {} and gradient norm {} are not both finite; train.nonfinite_policy=skip_step would "
          "leave such steps out. Nothing saved before is touched",
          step_, record.loss, record.grad_norm);
    if (due(config_.checkpoint.every_steps)) {
      metrics.sync();
      save();
    }
  }
  log.finish();
  metrics.sync();
  if (step_ > 0) save();
  return step_ == total_steps_;
}

}  // namespace mpt
