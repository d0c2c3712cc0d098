#include "train/trainer.h"

#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "checkpoint/checkpoint_files.h"
#include "config/run_config_json.h"
#include "config/run_paths.h"
#include "core/check.h"
#include "ranks/relayed_error.h"
#include "train/resume/phase_entry.h"
#include "train/resume/resume_check.h"
#include "train/step/same_on_all_ranks.h"
#include "train/step_schedule.h"
#include "train/stop_signal.h"
#include "weights/weight_source.h"

namespace mpt {
namespace {

constexpr const char* kSpikes = "spikes";  // in the extra part of a state

}  // namespace

bool Trainer::Phase::begins_after(int64_t step) const { return step == now().first_step; }

bool Trainer::Phase::begins_with_another_batch(int64_t step) const {
  return number > 0 && begins_after(step) &&
         config().batch.tokens_per_step != all[number - 1].config.batch.tokens_per_step;
}

Trainer::Trainer(const RunConfig& config, Device& device, FileSystem& fs, Communicator& ranks,
                 size_t phase)
    : phase_{run_phases(config), phase},
      place_{device, fs, ranks},
      data_(config, phase_.all.at(phase).config, ranks),
      allocator_(device.make_allocator()),
      model_(phase_.config(), device, *allocator_, ranks),
      incidents_(phase_.config().train),
      checkpoints_(config, device, fs, ranks, phase_.total_steps()),
      evaluation_({phase_.config(), data_.validation(), model_, device, ranks, failure_}),
      step_({phase_.config(), model_, data_, state_, incidents_, checkpoints_, failure_, device,
             ranks},
            phase_.total_steps(), phase_.now().last_step) {
  check_validation_data(data_.validation(), phase_.config().eval.tokens, ranks);
}

// Communication in progress on other threads uses memory about to be freed.
Trainer::~Trainer() { place_.ranks.settle(); }

void Trainer::initialize() {
  const RunConfig& config = phase_.config();
  initialize_weights(model_.weights, config.model.initializer_range, config.seed, place_.device);
  model_.llama.update_casts();
  model_.optimizer.weights_initialized();
}

void Trainer::initialize_from(const SavedWeights& saved) {
  CheckpointWeights source(place_.fs, saved.checkpoint, saved.config, place_.device);
  set_weights(model_.weights, source, place_.device);
  model_.weights_changed();
  model_.optimizer.weights_initialized();
  state_.init_from = saved.json();
}

void Trainer::resume(const std::string& checkpoint) {
  const TrainState saved = read_checkpoint_state(place_.fs, checkpoint);
  check_resumable(saved, checkpoint, phase_.all[phase_after(phase_.all, saved.step - 1)].config);
  const FormerData former = data_.checked(saved, checkpoint, phase_.config());
  restore_gemms(saved, checkpoint, place_.device);
  load(saved, checkpoint);
  checkpoints_.began_from(checkpoint, state_.step);
  state_.evaluation_pending = left_evaluation(saved) && state_.step > phase_.now().first_step;
  data_.continue_from(former, saved.cursor);
}

// Loads everything except the position in the data. `saved` is the state of the checkpoint.
void Trainer::load(const TrainState& saved, const std::string& checkpoint) {
  if (saved.step < phase_.now().first_step)
    throw error("{} is of step {}, before the {} phase, which begins after step {}", checkpoint,
                saved.step, phase_.number + 1, phase_.now().first_step);
  if (phase_.number > 0 && phase_.begins_after(saved.step)) {
    state_ = enter(saved, checkpoint);
  } else {
    load_verified_checkpoint(place_.fs, checkpoint, model_.parts_to_load(), place_.device);
    model_.weights_changed();
    model_.optimizer.states_loaded();
    state_ = RunState::of(saved, checkpoint);
  }
  checkpoints_.loaded(checkpoint, state_.step);
  incidents_.restore_spikes(
      phase_.begins_with_another_batch(state_.step) ? nlohmann::json() : extra_of(saved, kSpikes),
      checkpoint + ": extra." + kSpikes);
}

// Enters the phase from the checkpoint with which the one before it ended.
RunState Trainer::enter(const TrainState& saved, const std::string& checkpoint) {
  const PhaseEntry entry = enter_phase(place_.fs, checkpoint, phase_.all[phase_.number - 1].config,
                                       phase_.config(), model_, place_.device);
  RunState state = RunState::of(saved, checkpoint);
  if (!entry.keeps_moments) state.earlier_updates = state.step - state.skipped;
  if (place_.ranks.is_root())
    spdlog::info("phase {} of {}, steps {} to {}: {}", phase_.number + 1, phase_.all.size(),
                 phase_.now().first_step + 1, phase_.now().last_step, entry.text);
  return state;
}

// --- a step, and the work due after it -----------------------------------------------------------

std::optional<StepRecord> Trainer::step(RunLogger* logger) {
  const int64_t finished = state_.step;
  try {
    return step_.run(logger);
  } catch (const RelayedError&) {
    throw;
  } catch (const Error& failure) {
    throw error("{}; it came within step {}, where no state is whole{}: {}", failure.what(),
                finished + 1, place_.ranks.is_single() ? "" : " on all ranks", what_is_saved(""));
  }
}

bool Trainer::due(int64_t every_steps) const {
  return is_due(phase_.now(), state_.step, every_steps);
}

void Trainer::check_replicas() {
  const int64_t every = phase_.config().distributed.check_every_steps;
  if (place_.ranks.is_single() || every == 0 || state_.step % every != 0) return;
  model_.all_gather_weights();
  check_same_tensors(place_.ranks, model_.replicated_tensors(), place_.device);
}

void Trainer::evaluate_if_due(StepRecord& record) {
  const EvalConfig& eval = phase_.config().eval;
  if (!data_.validation().empty() && due(eval.every_steps)) record.validation = validated();
  record.samples = samples_if_due();
}

// An interrupted evaluation stops the run, and a resumed run makes it again.
std::optional<ValidationResult> Trainer::validated() {
  std::optional<ValidationResult> result = evaluation_.validate();
  if (!result) {
    failure_.stop();
    state_.evaluation_pending = true;
  }
  return result;
}

// If the evaluation is pending, so are the samples.
std::vector<SampleText> Trainer::samples_if_due() {
  if (state_.evaluation_pending || !due(phase_.config().eval.samples_every)) return {};
  return evaluation_.samples();
}

// The resumed run was stopped during the evaluation of its last step.
void Trainer::run_pending_evaluation(RunLogger* logger) {
  if (!state_.evaluation_pending) return;
  state_.evaluation_pending = false;
  const std::optional<ValidationResult> result =
      data_.validation().empty() ? std::nullopt : validated();
  const std::vector<SampleText> samples = samples_if_due();
  if (result && logger != nullptr)
    failure_.attempt([&] { logger->add_evaluation(state_.step, *result, samples); });
}

// --- steps that are not finite, and spikes -------------------------------------------------------

void Trainer::handle(const StepRecord& record, RunLogger* logger) {
  stop_if_ruined(record);
  const Remedy remedy = incidents_.remedy_for(record);
  if (remedy == Remedy::kContinue) {
    if (record.spike && place_.ranks.is_root())
      spdlog::warn("{}{}", trouble_of(record), record.skipped ? "; its update was left out" : "");
    return;
  }
  checkpoints_.finish_save(state_.step);  // that state precedes this step and is good
  if (remedy == Remedy::kStop) stop_at(record);
  roll_back(record, logger);
}

void Trainer::stop_if_ruined(const StepRecord& record) {
  if (!incidents_.ruins_the_run(record)) return;
  checkpoints_.finish_save(state_.step);
  throw error(
      "{}, the last of {} such steps in a row (train.max_skipped_steps): the weights are ruined, "
      "so the run stops here. Their last update was made in step {}; {}. Continue from a "
      "checkpoint of an earlier step, or start again with a lower learning rate",
      trouble_of(record), incidents_.nonfinite_in_a_row(),
      state_.step - incidents_.nonfinite_in_a_row(),
      checkpoints_.last().empty() ? "no checkpoint is saved"
                                  : "the last checkpoint is " + checkpoints_.last());
}

void Trainer::stop_at(const StepRecord& record) {
  if (checkpoints_.last().empty())
    throw error(
        "{}, so the run stops here; nothing is saved. Start again with a lower learning rate, or "
        "with --set {}=skip_step, which skips such steps",
        trouble_of(record), policy_key(record));
  throw error(
      "{}, so the run stops here and the step changed no weight (the last checkpoint is {}). To "
      "continue, resume with --set {}=skip_step, which skips such steps, or =rollback, which "
      "returns to the last checkpoint and continues after their data; or start again with a lower "
      "learning rate",
      trouble_of(record), checkpoints_.last(), policy_key(record));
}

// Loads the last good checkpoint of this run but keeps the data position after the failed step.
// Later steps in its directory belong to a run that this one does not continue.
void Trainer::roll_back(const StepRecord& record, RunLogger* logger) {
  incidents_.begin_rollback(record);
  const std::optional<std::string> checkpoint = checkpoints_.to_roll_back_to();
  if (!checkpoint)
    throw error("{}, and there is no checkpoint to roll back to ({}=rollback)", trouble_of(record),
                policy_key(record));
  load(read_checkpoint_state(place_.fs, *checkpoint), *checkpoint);
  if (!place_.ranks.is_root()) return;
  spdlog::warn("{}; rolled back to {}, continuing with the data after that step",
               trouble_of(record), *checkpoint);
  failure_.attempt(
      [&] { logger->mark_resume(state_.step, fmt::format("rollback from step {}", record.step)); });
}

// --- saving --------------------------------------------------------------------------------------

TrainState Trainer::state_to_save() const {
  TrainState state{.seed = phase_.config().seed,
                   .config = resolved_json(phase_.config()),
                   .extra = {{"gemms", gemms_json(place_.device)}}};
  state_.add_to(state);
  data_.add_to(state);
  const nlohmann::json spikes = incidents_.spikes().json();
  if (!spikes.is_null()) state.extra[kSpikes] = spikes;
  return state;
}

// Syncs metrics first: the lines up to a step must be durable before its checkpoint commits.
void Trainer::save(RunLogger* logger) {
  if (checkpoints_.last_step() == state_.step) return;
  StopSignal::stops(StopPoint::kAfterSaving);
  checkpoints_.finish_save(state_.step);
  incidents_.warn_of_frozen_scales(state_.step, model_.llama.fp8_states());
  failure_.attempt([&] {
    if (logger != nullptr) logger->sync();
  });
  model_.all_gather_weights();
  checkpoints_.begin({.state = state_to_save(),
                      .resting = model_.parts_to_save(),
                      .changing = model_.changing_parts()});
  incidents_.saved();
  if (!phase_.config().checkpoint.async) checkpoints_.finish_save(state_.step);
}

// After an error, `problem` is why the last finished step could not be saved; "" if it is saved.
std::string Trainer::what_is_saved(const std::string& problem) const {
  if (state_.step == 0) return "no step was finished, and nothing is saved";
  const std::string& last = checkpoints_.last();
  if (problem.empty() && checkpoints_.last_step() == state_.step && !checkpoints_.busy())
    return fmt::format("step {}, the last that was finished, is saved in {}", state_.step, last);
  return fmt::format("{}{}{}", last.empty() ? "nothing is saved" : "the last checkpoint is " + last,
                     problem.empty() ? "" : ": ", problem);
}

void Trainer::save_last_step(RunLogger* logger) {
  if (logger != nullptr) logger->finish();
  if (state_.step > 0) save(logger);
  StopSignal::stops(StopPoint::kAfterSaving);
  checkpoints_.finish_save(state_.step);
  checkpoints_.finish_command();
}

// Throws a failure whether or not saving succeeds.
void Trainer::finish(RunLogger* logger) {
  const bool failed = failure_.share(place_.ranks);
  std::string problem;
  try {
    save_last_step(logger);
  } catch (const Error& unsaved) {
    if (!failed) throw;
    problem = unsaved.what();
  }
  failure_.rethrow(place_.ranks, what_is_saved(problem));
}

// --- run -----------------------------------------------------------------------------------------

std::unique_ptr<RunLogger> Trainer::open_logger() {
  std::unique_ptr<RunLogger> logger;
  Communicator& ranks = place_.ranks;
  const RunConfig& config = phase_.config();
  ranks.together([&] {
    if (!ranks.is_root()) return;
    const bool continued = has_metrics(place_.fs, config);
    logger = std::make_unique<RunLogger>(
        place_.fs, config,
        RunLogger::Options{.first_step = state_.step,
                           .total_steps = phase_.total_steps(),
                           .attention = attention_in_use(config, place_.device, ranks.size())});
    const bool begins = state_.step > 0 && phase_.begins_after(state_.step);
    if (continued)
      logger->mark_resume(state_.step,
                          begins ? fmt::format("phase {} begins", phase_.number + 1) : "");
  });
  return logger;
}

// Evaluation precedes a checkpoint of the same step, whose metrics it completes. If it fails, the
// step is saved anyway, and a resumed run makes the evaluation again.
bool Trainer::run() {
  const std::unique_ptr<RunLogger> logger = open_logger();
  run_pending_evaluation(logger.get());
  const int64_t last_step = phase_.now().last_step;
  if (state_.step < last_step) failure_.attempt([&] { step_.await_batch(); });
  failure_.share(place_.ranks);
  while (state_.step < last_step && !failure_.stops(place_.ranks)) {
    std::optional<StepRecord> record = step(logger.get());
    if (!record) break;
    checkpoints_.poll(state_.step);
    check_replicas();
    evaluate_if_due(*record);
    if (logger) failure_.attempt([&] { logger->record(*record); });
    handle(*record, logger.get());
    // Steps that are not finite may mean ruined weights: the checkpoint before them is kept.
    if (due(phase_.config().checkpoint.every_steps) && incidents_.nonfinite_in_a_row() == 0)
      save(logger.get());
  }
  finish(logger.get());
  return state_.step == last_step && !state_.evaluation_pending;
}

void Trainer::run_unrecorded(int64_t steps) {
  step_.await_batch();
  for (int64_t i = 0; i < steps && !failure_.stops(place_.ranks); ++i) {
    const std::optional<StepRecord> record = step_.run(nullptr);
    if (!record) break;
    if (incidents_.remedy_for(*record) != Remedy::kContinue)
      throw error("{}, so the steps that are only measured end here; nothing was written",
                  trouble_of(*record));
  }
  failure_.rethrow(place_.ranks, "nothing was written");
}

}  // namespace mpt
