#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <spdlog/spdlog.h>

#include "config/run_config_json.h"
#include "config/run_inputs.h"
#include "core/check.h"
#include "core/progress.h"
#include "device/device.h"
#include "inference/weight_source.h"
#include "optim/schedule.h"
#include "parallel/data_parallel.h"
#include "train/plan/due_steps.h"
#include "train/resume/phase_entry.h"
#include "train/resume/resume_check.h"
#include "train/resume/resumed_data.h"

namespace mpt {

namespace {

// In the extra part of a state.
constexpr const char* kInitFrom = "init_from";
constexpr const char* kSpikes = "spikes";

RowSlice checked_rows(const BatchConfig& batch, const Communicator& ranks) {
  require_rows(batch, ranks.size());
  return batch_plan(batch, ranks.rank(), ranks.size()).own;
}

}  // namespace

Trainer::Trainer(const RunConfig& config, Device& device, FileSystem& fs, Communicator& ranks,
                 size_t phase)
    : phases_(run_phases(config)),
      phase_(phase),
      config_(phases_.at(phase).config),
      device_(device),
      fs_(fs),
      ranks_(ranks),
      batch_(batch_plan(config_.batch, ranks.rank(), ranks.size())),
      total_steps_(total_steps(config)),
      train_data_(open_training_data(config)),
      validation_data_(open_validation_data(config)),
      train_shards_(contents_of(*train_data_)),
      validation_shards_(contents_of(validation_data_)),
      text_(validation_data_.empty() ? TextBytes() : text_of_data(config.data)),
      samples_(config.eval.samples_every > 0 ? std::optional<RunSamples>(config) : std::nullopt),
      allocator_(device.make_allocator()),
      model_(config_, device, *allocator_, ranks),
      loader_(train_data_, {.rows_per_batch = config_.batch.rows_per_step(),
                            .prefetch_batches = config.data.prefetch_steps,
                            .first_sequence = 0,
                            .slice = checked_rows(config_.batch, ranks)}),
      checkpoints_(fs, checkpoint_directory(config),
                   {.keep_last = config.checkpoint.keep_last,
                    .keep_every_steps = config.checkpoint.keep_every_steps}),
      saver_(checkpoints_, device, ranks),
      on_commit_(config.checkpoint.on_commit, run_directory(config) + "/on_commit.log"),
      work_(model_, batch_, device),
      spikes_(config.train) {
  check_validation_data(validation_data_, config_.eval.tokens, ranks_);
}

// Communication in progress on other threads uses memory that is about to be freed.
Trainer::~Trainer() { ranks_.settle(); }

void Trainer::initialize() {
  initialize_weights(model_.weights, config_.model.initializer_range, config_.seed, device_);
  model_.llama.update_casts();
  model_.optimizer.weights_initialized();
}

void Trainer::initialize_from(const SavedWeights& saved) {
  CheckpointWeights source(fs_, saved.checkpoint, saved.config, device_);
  set_weights(model_.weights, source, device_);
  model_.weights_changed();
  model_.optimizer.weights_initialized();
  init_from_ = saved.json();
}

void Trainer::resume(const std::string& checkpoint) {
  const TrainState preview = checkpoints_.read_state(checkpoint);
  check_resumable(preview, checkpoint, phases_[phase_after(phases_, preview.step - 1)].config);
  const FormerData former = former_data(preview, checkpoint, config_);
  check_corpora(former, checkpoint, {*train_data_, train_shards_, validation_shards_}, config_);
  restore_gemms(preview, checkpoint, device_);
  load(checkpoint);
  if (parent_directory(checkpoint) != checkpoint_directory(config_)) {
    from_elsewhere_ = checkpoint;
    step_from_elsewhere_ = step_;
  }
  evaluation_left_ = left_evaluation(preview) && step_ > phases_[phase_].first_step;
  train_data_ = continued_data(former, preview.cursor, *train_data_);
  loader_.seek(train_data_, preview.cursor);
  former_ = former;
}

// Gradients of another number of rows have norms of another size.
bool Trainer::begins_with_another_batch() const {
  return phase_ > 0 && step_ == phases_[phase_].first_step &&
         config_.batch.tokens_per_step != phases_[phase_ - 1].config.batch.tokens_per_step;
}

// Loads everything except the position in the data.
void Trainer::load(const std::string& checkpoint) {
  const TrainState saved = load_state(checkpoint);
  step_ = last_saved_ = saved.step;
  last_checkpoint_ = checkpoint;
  tokens_ = saved.tokens;
  skipped_ = saved_count(saved, checkpoint, kSkippedSteps);
  spikes_.restore(begins_with_another_batch() ? nlohmann::json() : extra_of(saved, kSpikes),
                  checkpoint + ": extra." + kSpikes);
  init_from_ = saved.extra.value(kInitFrom, nlohmann::json());
}

// The tensors of a checkpoint of this phase, or of that with which the one before it ended.
TrainState Trainer::load_state(const std::string& checkpoint) {
  const TrainState preview = checkpoints_.read_state(checkpoint);
  const RunPhase& phase = phases_[phase_];
  if (preview.step < phase.first_step)
    throw error("{} is of step {}, before the {} phase, which begins after step {}", checkpoint,
                preview.step, phase_ + 1, phase.first_step);
  if (!extra_of(preview, kEarlierUpdates).is_null())
    earlier_updates_ = saved_count(preview, checkpoint, kEarlierUpdates);
  if (preview.step > phase.first_step || phase_ == 0) {
    const TrainState saved =
        load_verified_checkpoint(fs_, checkpoint, model_.parts_to_load(), device_);
    model_.weights_changed();
    model_.optimizer.states_loaded();
    return saved;
  }
  const PhaseEntry entry =
      enter_phase(fs_, checkpoint, phases_[phase_ - 1].config, config_, model_, device_);
  if (!entry.keeps_moments)
    earlier_updates_ = preview.step - saved_count(preview, checkpoint, kSkippedSteps);
  if (ranks_.is_root())
    spdlog::info("phase {} of {}, steps {} to {}: {}", phase_ + 1, phases_.size(),
                 phase.first_step + 1, phase.last_step, entry.text);
  return preview;
}

// --- one step ------------------------------------------------------------------------------------

Batch Trainer::next_batch() {
  const ProfileScope scope(device_, "data");
  return loader_.next();
}

// Throws Error unless the next step has something to train on.
void Trainer::await_batch() {
  const Batch& batch = loader_.peek();
  if (batch.valid_targets == 0)
    throw error("step {}: sequences {} to {} of the training data have no token to predict",
                step_ + 1, batch.first_sequence, batch.first_sequence + batch.rows - 1);
}

// The host waits for the device once, at the end: inputs are written beforehand, and the device
// decides whether to update. Data of the next step is waited for at the end of this one, so that
// all ranks learn in time if one cannot read it.
std::optional<StepRecord> Trainer::step(RunLogger* logger) {
  const ProfileScope scope(device_, "step");
  StopSignal::stops(stop_point());
  const auto start = std::chrono::steady_clock::now();
  const int64_t cursor = loader_.cursor(), tokens = tokens_;
  const Batch batch = next_batch();
  ++step_;
  tokens_ += batch.valid_targets;
  StepRecord record{.step = step_, .tokens = tokens_, .step_tokens = batch.valid_targets};
  record.data_hash = batch.hash;
  record.lr_factor = schedule_factor(config_.schedule, step_, total_steps_);
  stage(batch);
  limit_step(batch);
  if (!enqueue(record, logger)) {
    --step_;
    tokens_ = tokens;
    loader_.seek(cursor);
    return std::nullopt;
  }
  model_.follow_weights(step_);
  device_.synchronize();
  const StepControl& control = model_.optimizer.control();
  record.loss = work_.loss() / double(batch.valid_targets);
  record.grad_norm = control.grad_norm;
  record.skipped = control.proceed == 0;
  if (record.skipped) ++skipped_;
  judge(record);
  if (step_ < phases_[phase_].last_step) {
    const ProfileScope data(device_, "data");
    failure_.attempt([&] { await_batch(); });
  }
  record.seconds = seconds_since(start);
  return record;
}

std::optional<StepRecord> Trainer::step_of_all(RunLogger* logger) {
  const int64_t finished = step_;
  try {
    std::optional<StepRecord> record = step(logger);
    if (record) exchange_status(*record);
    return record;
  } catch (const Error& failure) {
    throw error("{}; it came within step {}, where no state is whole{}: {}", failure.what(),
                finished + 1, ranks_.is_single() ? "" : " on all ranks", what_is_saved(""));
  }
}

StopPoint Trainer::stop_point() const {
  if (!work_.can_be_left()) return StopPoint::kAfterStep;
  return step_ == 0 ? StopPoint::kWithinFirstStep : StopPoint::kWithinStep;
}

// During a save, the host must wait before the update until the state has been read. prepare()
// comes after that wait, since it may change saved state (projections of Apollo-E).
bool Trainer::enqueue(StepRecord& record, RunLogger* logger) {
  const StepScalars scalars = scalars_of(record);
  if (!work_.can_be_left() && !counts_updates() && !saver_.busy()) {
    model_.optimizer.prepare(scalars);
    work_.enqueue();
    return true;
  }
  if (!try_gradients(logger)) return false;
  if (counts_updates()) device_.synchronize();
  saver_.before_update();
  if (counts_updates()) {
    update_with_statistics(record, scalars);
  } else {
    model_.optimizer.prepare(scalars);
    work_.enqueue_update();
  }
  return true;
}

bool Trainer::try_gradients(RunLogger* logger) {
  if (!work_.can_be_left()) {
    work_.enqueue_gradients();
    return true;
  }
  TrainingStep::Attempt attempt{.seconds_of_last = seconds_};
  if (logger != nullptr)
    attempt.begins = [&](int64_t i, int64_t of) { logger->micro_batch_begins(step_, i, of); };
  return work_.try_gradients(attempt);
}

void Trainer::stage(const Batch& batch) {
  model_.llama.stage({batch.tokens, batch.targets, batch.document_begin},
                     float(1.0 / double(batch.valid_targets)));
}

// Bias correction counts updates made; the schedule counts steps.
StepScalars Trainer::scalars_of(const StepRecord& record) const {
  return {.t = step_ - skipped_ - earlier_updates_,
          .earlier = earlier_updates_,
          .lr_factor = record.lr_factor};
}

bool Trainer::counts_updates() const {
  const int64_t every = config_.log.update_statistics;
  return every > 0 && step_ % every == 0;
}

void Trainer::update_with_statistics(StepRecord& record, StepScalars scalars) {
  const StepControl control = model_.optimizer.control();
  scalars.grad_scale = control.grad_scale;
  if (control.proceed != 0) {
    record.update_statistics = model_.optimizer.step_with_statistics(scalars);
    record.fp8 = model_.llama.fp8_states();
  }
  work_.finish_update();
}

// An infinite amax freezes a delayed scale until it leaves the history.
void Trainer::warn_of_frozen_scales() {
  int64_t frozen = 0;
  std::string worst;
  for (const auto& [name, state] : model_.llama.fp8_states()) {
    if (state.frozen > 0 && worst.empty()) worst = name;
    frozen += state.frozen;
  }
  if (frozen > frozen_)
    spdlog::warn(
        "step {}: {} updates of FP8 scales had no effect because an amax was infinite, first in {}",
        step_, frozen - frozen_, worst);
  frozen_ = frozen;
}

void Trainer::check_replicas() {
  const int64_t every = config_.distributed.check_every_steps;
  if (ranks_.is_single() || every == 0 || step_ % every != 0) return;
  model_.all_gather_weights();
  check_same_tensors(ranks_, model_.replicated_tensors(), device_);
}

// Nothing if a signal made a rank leave it, or an error. Where evaluation changes the state of
// training, a signal lets it go on to its end.
std::optional<ValidationResult> Trainer::evaluation() {
  const ProfileScope scope(device_, "evaluation");
  const bool changes_state = config_.precision.compute == ComputeFormat::kFp8 &&
                             config_.precision.fp8_eval_amax == EvalAmax::kFold;
  StopSignal::stops(changes_state ? StopPoint::kAfterEvaluation : StopPoint::kWithinEvaluation);
  EvaluationOptions options{.rows_per_batch = batch_.micro_batch_rows,
                            .tokens = config_.eval.tokens,
                            .galore_batch_rows = galore_batch_rows(config_),
                            .text = &text_,
                            .ranks = ranks_};
  if (!changes_state) options.leave = [] { return StopSignal::received() != 0; };
  model_.all_gather_weights();
  try {
    return evaluate(model_.llama, validation_data_, options);
  } catch (const EvaluationLeft& left) {
    if (left.failure) failure_.keep(left.failure);
    stopping_ = evaluation_left_ = true;
    return std::nullopt;
  }
}

// With an evaluation that was left, they are left, too.
std::vector<SampleText> Trainer::samples_if_due() {
  if (!samples_ || !due(config_.eval.samples_every) || evaluation_left_) return {};
  const ProfileScope scope(device_, "samples");
  StopSignal::stops(StopPoint::kAfterEvaluation);
  model_.all_gather_weights();
  std::vector<SampleText> samples;
  failure_.attempt([&] { samples = samples_->write(model_.llama); });
  return samples;
}

// The run that is continued was stopped within the evaluation of its last step.
void Trainer::make_evaluation_left(RunLogger* logger) {
  if (!evaluation_left_) return;
  evaluation_left_ = false;
  const std::optional<ValidationResult> result =
      validation_data_.empty() ? std::nullopt : evaluation();
  const std::vector<SampleText> samples = samples_if_due();
  if (result && logger != nullptr)
    failure_.attempt([&] { logger->add_evaluation(step_, *result, samples); });
}

// --- steps that are not finite, and spikes -------------------------------------------------------

bool Trainer::spikes_are_left_out() const {
  return config_.train.spike_policy != SpikePolicy::kOff &&
         config_.train.spike_policy != SpikePolicy::kWarn;
}

// The device leaves the update of a spike out.
void Trainer::limit_step(const Batch& batch) {
  if (!spikes_are_left_out()) return;
  const SpikeLimits most = spikes_.limits();
  model_.optimizer.set_limits(
      {.grad_norm = most.grad_norm, .loss_sum = most.loss * double(batch.valid_targets)});
}

// Where spikes are left out, the device has decided whether this is one.
void Trainer::judge(StepRecord& record) {
  if (!std::isfinite(record.loss) || !std::isfinite(record.grad_norm)) return;
  const bool spike =
      spikes_are_left_out() ? record.skipped : spikes_.stands_out(record.loss, record.grad_norm);
  if (spike) record.spike = spikes_.compare(record.loss, record.grad_norm);
  spikes_.see(record.loss, record.grad_norm);
}

namespace {

// "step 7: loss nan or gradient norm inf is not finite"; of a spike, what stands out.
std::string trouble_of(const StepRecord& record) {
  if (!record.spike)
    return fmt::format("step {}: loss {} or gradient norm {} is not finite", record.step,
                       record.loss, record.grad_norm);
  return fmt::format("step {}: a spike: loss {:.4f}, gradient norm {:.4g}; {}", record.step,
                     record.loss, record.grad_norm, record.spike->text());
}

}  // namespace

Trainer::Remedy Trainer::remedy_for(const StepRecord& record) const {
  const NonfinitePolicy nonfinite = config_.train.nonfinite_policy;
  const SpikePolicy spike = config_.train.spike_policy;
  if (record.spike)
    return spike == SpikePolicy::kRollback ? Remedy::kRollBack
           : spike == SpikePolicy::kStop   ? Remedy::kStop
                                           : Remedy::kGoOn;
  if (!record.skipped || nonfinite == NonfinitePolicy::kSkipStep) return Remedy::kGoOn;
  return nonfinite == NonfinitePolicy::kRollback ? Remedy::kRollBack : Remedy::kStop;
}

// With weights that are not finite, or too large, no step is.
void Trainer::require_finite_steps(const StepRecord& record) {
  unfinite_ = record.skipped && !record.spike ? unfinite_ + 1 : 0;
  if (unfinite_ < config_.train.max_skipped_steps ||
      config_.train.nonfinite_policy != NonfinitePolicy::kSkipStep)
    return;
  report_save(saver_.finish());
  throw error(
      "{}, the last of {} such steps in a row (train.max_skipped_steps): the weights are ruined, "
      "so the run stops here. Their last update was made in step {}; {}. Continue from a "
      "checkpoint of an earlier step, or start again with a lower learning rate",
      trouble_of(record), unfinite_, step_ - unfinite_,
      last_checkpoint_.empty() ? "no checkpoint is saved"
                               : "the last checkpoint is " + last_checkpoint_);
}

void Trainer::handle_trouble(const StepRecord& record, RunLogger* logger) {
  require_finite_steps(record);
  const Remedy remedy = remedy_for(record);
  if (remedy == Remedy::kGoOn) {
    if (record.spike && ranks_.is_root())
      spdlog::warn("{}{}", trouble_of(record), record.skipped ? "; its update was left out" : "");
    return;
  }
  report_save(saver_.finish());  // that state precedes this step and is good
  if (remedy == Remedy::kRollBack) return roll_back(record, logger);
  const char* const key = record.spike ? "train.spike_policy" : "train.nonfinite_policy";
  if (last_checkpoint_.empty())
    throw error(
        "{}, so the run stops here; nothing is saved. Start again with a lower learning rate, or "
        "with --set {}=skip_step, which skips such steps",
        trouble_of(record), key);
  throw error(
      "{}, so the run stops here and the step changed no weight (the last checkpoint is {}). To "
      "continue, resume with --set {}=skip_step, which skips such steps, or =rollback, which "
      "returns to the last checkpoint and continues after their data; or start again with a lower "
      "learning rate",
      trouble_of(record), last_checkpoint_, key);
}

// Loads the last good checkpoint of this run but keeps the data position after the failed step.
// Later steps in its directory are of a run that this one does not continue.
void Trainer::roll_back(const StepRecord& record, RunLogger* logger) {
  if (++rollbacks_ > config_.train.max_rollbacks)
    throw error(
        "{}, after {} rollbacks without a new checkpoint (train.max_rollbacks). Saved checkpoints "
        "are untouched",
        trouble_of(record), config_.train.max_rollbacks);
  std::optional<std::string> checkpoint =
      checkpoints_.latest_good(ranks_, last_saved_, step_from_elsewhere_);
  if (!checkpoint && !from_elsewhere_.empty()) checkpoint = from_elsewhere_;
  if (!checkpoint)
    throw error("{}, and there is no checkpoint to roll back to ({}=rollback)", trouble_of(record),
                record.spike ? "train.spike_policy" : "train.nonfinite_policy");
  load(*checkpoint);
  evaluation_left_ = false;
  if (!ranks_.is_root()) return;
  spdlog::warn("{}; rolled back to {}, continuing with the data after that step",
               trouble_of(record), *checkpoint);
  failure_.attempt(
      [&] { logger->mark_resume(step_, fmt::format("rollback from step {}", record.step)); });
}

// --- the run -------------------------------------------------------------------------------------

bool Trainer::due(int64_t every_steps) const { return is_due(phases_[phase_], step_, every_steps); }

TrainState Trainer::state() const {
  TrainState state{.step = step_,
                   .cursor = loader_.cursor(),
                   .seed = config_.seed,
                   .config = resolved_json(config_),
                   .extra = {{kSkippedSteps, skipped_}, {"products", gemms_json(device_)}},
                   .tokens = tokens_};
  if (evaluation_left_) state.extra[kEvaluationLeft] = true;
  if (earlier_updates_ > 0) state.extra[kEarlierUpdates] = earlier_updates_;
  if (!init_from_.is_null()) state.extra[kInitFrom] = init_from_;
  if (nlohmann::json seen = spikes_.json(); !seen.is_null()) state.extra[kSpikes] = std::move(seen);
  add_data(state, {*train_data_, train_shards_, validation_shards_}, former_);
  return state;
}

// Syncs metrics first: the lines up to a step must be durable before its checkpoint commits.
void Trainer::save(RunLogger* logger) {
  if (last_saved_ == step_) return;
  StopSignal::stops(StopPoint::kAfterSaving);
  report_save(saver_.finish());
  warn_of_frozen_scales();
  failure_.attempt([&] {
    if (logger != nullptr) logger->sync();
  });
  model_.all_gather_weights();
  saver_.begin(
      {.state = state(), .resting = model_.parts_to_save(), .changing = model_.changing_parts()});
  last_saved_ = step_;
  rollbacks_ = 0;
  if (!config_.checkpoint.async) report_save(saver_.finish());
}

void Trainer::report_save(const std::optional<SaveReport>& report) {
  if (!report) return;
  last_checkpoint_ = checkpoints_.path_of(report->step);
  if (!ranks_.is_root()) return;
  on_commit_.committed(report->step, checkpoints_.path_of(report->step));
  checkpoints_.hold(on_commit_.steps_in_use());
  spdlog::info("step {:>6}/{} | saved step {}: {}", step_, total_steps_, report->step,
               report->text());
}

// A checkpoint that a command reads stays.
void Trainer::watch_command() {
  if (!ranks_.is_root()) return;
  on_commit_.poll();
  checkpoints_.hold(on_commit_.steps_in_use());
}

// The other ranks are told that rank 0 still waits, which may be for longer than
// distributed.timeout_seconds.
void Trainer::finish_command() {
  using namespace std::chrono_literals;
  if (config_.checkpoint.on_commit.empty()) return;
  const auto waits = [&] { return ranks_.is_root() && !on_commit_.finish(200ms) ? 1 : 0; };
  while (ranks_.gather_numbers(waits()).front() != 0) continue;
  if (!ranks_.is_root()) return;
  checkpoints_.hold({});
  checkpoints_.prune();
}

// Exchanged between ranks after every step.
struct Trainer::StepStatus {
  int64_t stops;  // a signal, or a failure
  uint64_t data_hash;
  double seconds;
};

void Trainer::exchange_status(StepRecord& record) {
  const bool stops = StopSignal::received() != 0 || failure_.any();
  const StepStatus mine{stops ? 1 : 0, record.data_hash, record.seconds};
  std::vector<StepStatus> all(static_cast<size_t>(ranks_.size()));
  ranks_.gather_host(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  record.data_hash = 0;
  seconds_ = 0;
  for (const StepStatus& status : all) {
    stopping_ |= status.stops != 0;
    record.data_hash += status.data_hash;
    seconds_ = std::max(seconds_, status.seconds);
  }
}

std::unique_ptr<RunLogger> Trainer::open_logger() {
  std::unique_ptr<RunLogger> logger;
  ranks_.together([&] {
    if (!ranks_.is_root()) return;
    const bool continued = has_metrics(fs_, config_);
    logger = std::make_unique<RunLogger>(
        fs_, config_,
        RunLogger::Options{.first_step = step_,
                           .total_steps = total_steps_,
                           .attention = attention_in_use(config_, device_, ranks_.size())});
    const bool begins = step_ > 0 && step_ == phases_[phase_].first_step;
    if (continued)
      logger->mark_resume(step_, begins ? fmt::format("phase {} begins", phase_ + 1) : "");
  });
  return logger;
}

// Collective.
bool Trainer::one_has_failed() {
  const std::vector<int64_t> failed = ranks_.gather_numbers(failure_.any() ? 1 : 0);
  return std::ranges::any_of(failed, [](int64_t rank) { return rank != 0; });
}

// Other ranks learn of a failure in exchange_status().
bool Trainer::stops() const { return stopping_ || (ranks_.is_single() && failure_.any()); }

// After an error, `problem` is what kept the last finished step from being saved; "" if it is
// saved.
std::string Trainer::what_is_saved(const std::string& problem) const {
  if (step_ == 0) return "no step was finished, and nothing is saved";
  if (problem.empty() && last_saved_ == step_ && !saver_.busy())
    return fmt::format("step {}, the last that was finished, is saved in {}", step_,
                       last_checkpoint_);
  return fmt::format(
      "{}{}{}",
      last_checkpoint_.empty() ? "nothing is saved" : "the last checkpoint is " + last_checkpoint_,
      problem.empty() ? "" : ": ", problem);
}

void Trainer::save_last_step(RunLogger* logger) {
  if (logger != nullptr) logger->finish();
  if (step_ > 0) save(logger);
  StopSignal::stops(StopPoint::kAfterSaving);
  report_save(saver_.finish());
  finish_command();
}

// A failure is thrown whatever becomes of the saving.
void Trainer::finish(RunLogger* logger) {
  const bool failed = one_has_failed();
  std::string problem;
  try {
    save_last_step(logger);
  } catch (const Error& unsaved) {
    if (!failed) throw;
    problem = unsaved.what();
  }
  failure_.rethrow(ranks_, what_is_saved(problem));
}

// Evaluation comes before a checkpoint of the same step, whose metrics it completes. If it fails,
// the step is saved all the same, and a resumed run makes the evaluation again.
bool Trainer::run() {
  const std::unique_ptr<RunLogger> logger = open_logger();
  make_evaluation_left(logger.get());
  const int64_t last_step = phases_[phase_].last_step;
  if (step_ < last_step) failure_.attempt([&] { await_batch(); });
  stopping_ |= one_has_failed();
  while (step_ < last_step && !stops()) {
    std::optional<StepRecord> record = step_of_all(logger.get());
    if (!record) break;
    report_save(saver_.poll());
    watch_command();
    check_replicas();
    if (!validation_data_.empty() && due(config_.eval.every_steps))
      record->validation = evaluation();
    record->samples = samples_if_due();
    if (logger) failure_.attempt([&] { logger->record(*record); });
    handle_trouble(*record, logger.get());
    // Steps that are not finite may mean ruined weights: the checkpoint before them is kept.
    if (due(config_.checkpoint.every_steps) && unfinite_ == 0) save(logger.get());
  }
  finish(logger.get());
  return step_ == last_step && !evaluation_left_;
}

void Trainer::run_unrecorded(int64_t steps) {
  await_batch();
  for (int64_t i = 0; i < steps && !stops(); ++i) {
    std::optional<StepRecord> record = step(nullptr);
    if (!record) break;
    exchange_status(*record);
    if (remedy_for(*record) != Remedy::kGoOn)
      throw error("{}, so the steps that are only measured end here; nothing was written",
                  trouble_of(*record));
  }
  failure_.rethrow(ranks_, "nothing was written");
}

}  // namespace mpt
