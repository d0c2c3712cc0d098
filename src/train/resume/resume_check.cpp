#include "train/resume/resume_check.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>

#include <spdlog/spdlog.h>

#include "config/run_config_json.h"
#include "core/check.h"
#include "core/json/config_reader.h"
#include "core/json/json_parse.h"
#include "core/text/counted.h"
#include "optim/schedule.h"
#include "train/run_state.h"
#include "weights/weights_checkpoint.h"

namespace mpt {
namespace {

// Keys, or prefixes of keys, that must not change between a checkpoint and its continuation.
constexpr std::array<std::string_view, 14> kFixed{"model.",
                                                  "precision.",
                                                  "data.pack",
                                                  "data.packing",
                                                  "data.attention",
                                                  "data.shuffle",
                                                  "batch.seq_len",
                                                  "seed",
                                                  "train.init_from",
                                                  "train.ema_decay",
                                                  "optimizer.rule",
                                                  "optimizer.weight_rounding",
                                                  "optimizer.apollo_e",
                                                  "optimizer.apollo_e_rank"};

// Keys that do not affect training.
constexpr std::array<std::string_view, 11> kHarmless{"checkpoint.",
                                                     "train.init_from_other_rope",
                                                     "eval.",
                                                     "log.",
                                                     "output_dir",
                                                     "device.threads",
                                                     "data.prefetch_steps",
                                                     "data.changed_shards",
                                                     "name",
                                                     "distributed.timeout_seconds",
                                                     "device.fp8_weight_codes"};

// Keys that set the length of a run.
constexpr std::array<std::string_view, 3> kRunLengthKeys{"train.steps", "train.tokens",
                                                         "train.chinchilla"};

bool is_among(std::string_view key, std::span<const std::string_view> keys) {
  return std::any_of(keys.begin(), keys.end(), [&](std::string_view one) {
    return one.ends_with('.') ? key.starts_with(one) : key == one;
  });
}

bool is_fixed(std::string_view key) { return is_among(key, kFixed); }

// "/batch/seq_len" -> "batch.seq_len"
std::string dotted(std::string pointer) {
  std::replace(pointer.begin(), pointer.end(), '/', '.');
  return pointer.substr(1);
}

// Returns the saved keys under their current names: {"batch.seq_len": 64, ...}. A key that did not
// exist in the version that saved has its default.
nlohmann::json saved_keys(const TrainState& saved, const std::optional<RunConfig>& config) {
  if (config) return nlohmann::json(resolved_json(*config)).flatten();
  JsonDocument document = JsonDocument::of_value(saved.config, "the checkpoint's config");
  RunConfig fields;
  use_present_names(document, Fields::of(fields));
  return nlohmann::json(document.root()).flatten();
}

RecordedRows rows_of(const RunConfig& config) {
  return {.step = config.batch.rows_per_step(),
          .micro_batch = config.batch.rows_per_micro_batch(),
          .galore_batch = galore_batch_rows(config)};
}

// Replaces 0 by the number that it stood for, so that naming that number is no change.
void name_rows(nlohmann::json& keys, const RunConfig& config) {
  const RecordedRows rows = rows_of(config);
  keys["/batch/micro_batch_rows"] = rows.micro_batch;
  keys["/eval/galore_batch_rows"] = rows.galore_batch;
}

// The schedule spans the whole run, so a new length changes every later learning rate.
void tell_new_length(int64_t step, const RunConfig& before, const RunConfig& config) {
  const int64_t was = total_steps(before), is = total_steps(config);
  if (was == is || step >= is) return;
  spdlog::warn(
      "resume: the run length changed from {} to {} steps: the schedule now spans {} steps, so the "
      "learning-rate factor goes from {:.4g} at step {} to {:.4g} at step {}",
      was, is, is, schedule_factor(before.schedule, step, was), step,
      schedule_factor(config.schedule, step + 1, is), step + 1);
}

}  // namespace

nlohmann::json extra_of(const TrainState& saved, const std::string& key) {
  return saved.extra.is_object() ? saved.extra.value(key, nlohmann::json()) : nlohmann::json();
}

std::optional<RunConfig> saved_config(const TrainState& saved) {
  if (!saved.config.is_object()) return std::nullopt;
  try {
    return parse_run_config(JsonDocument::of_value(saved.config, "the checkpoint's config"));
  } catch (const Error&) {
    return std::nullopt;
  }
}

RecordedRows rows_of(const TrainState& saved, size_t phase) {
  const std::optional<RunConfig> config = saved_config(saved);
  if (!config) return {};
  const std::vector<RunPhase> phases = run_phases(*config);
  const size_t saving = phase_after(phases, saved.step - 1);
  if (phase >= phases.size()) return rows_of(phases[saving].config);
  RecordedRows rows = rows_of(phases[phase].config);
  if (phase != saving) rows.galore_batch = 0;
  return rows;
}

bool left_evaluation(const TrainState& saved) { return extra_of(saved, kEvaluationLeft) == true; }

size_t phase_to_continue(const std::vector<RunPhase>& phases, const TrainState& saved) {
  return phase_after(phases, left_evaluation(saved) ? saved.step - 1 : saved.step);
}

namespace {

// Checks the number of updates, which is computed from the other counts.
void check_updates(const TrainState& saved, const std::string& checkpoint) {
  const auto count = [&](const char* key) {
    return extra_of(saved, key).is_null() ? 0 : saved_count(saved, checkpoint, key);
  };
  const int64_t skipped = count(kSkippedSteps), earlier = count(kEarlierUpdates);
  if (skipped > saved.step || earlier > saved.step - skipped)
    throw error(
        "{}: cannot be continued: extra.{} of its state is {} and extra.{} is {}; expected no more "
        "than its {} steps in all",
        checkpoint, kSkippedSteps, skipped, kEarlierUpdates, earlier, saved.step);
}

// The initial RMS of tensors, the unit of such a bound, is stored with the optimizer's states.
void check_bound(const std::string& checkpoint, const RunConfig& before, const RunConfig& config) {
  const bool was = bounds_weights(before.optimizer.rule);
  if (was == bounds_weights(config.optimizer.rule)) return;
  throw error(
      "{}: cannot be resumed: it was saved {} a bound on weights in units of their initial RMS. "
      "Restore optimizer.clip_weight and optimizer.clip_weight_mode, or start a new run under "
      "another name",
      checkpoint, was ? "with" : "without");
}

struct ChangedKey {
  std::string key, before, now;  // values as text
};

std::vector<ChangedKey> changed_keys(const nlohmann::json& before, const nlohmann::json& now) {
  nlohmann::json both = before;
  both.update(now);
  std::vector<ChangedKey> changes;
  for (const auto& [pointer, unused] : both.items()) {
    const auto text = [&](const nlohmann::json& flat) {
      const nlohmann::json value = flat.value(pointer, nlohmann::json());
      return value.is_null() ? std::string("not set") : json_text(value);
    };
    if (text(before) != text(now)) changes.push_back({dotted(pointer), text(before), text(now)});
  }
  return changes;
}

// If there are several such keys, names the rule, on which others depend.
void refuse_fixed(const std::vector<ChangedKey>& changes, const std::string& checkpoint) {
  auto found = std::ranges::find(changes, "optimizer.rule", &ChangedKey::key);
  if (found == changes.end()) found = std::ranges::find_if(changes, is_fixed, &ChangedKey::key);
  if (found == changes.end()) return;
  const bool by_phase =
      found->key.starts_with("optimizer.") || found->key.starts_with("precision.");
  throw error(
      "{}: cannot be resumed with {} = {}: the checkpoint was saved with {}. Restore the value, {}"
      "or start a new run under another name",
      checkpoint, found->key, found->now, found->before,
      by_phase ? "change it from a later step on (phases), " : "");
}

// The length of the run and its phases are logged on lines of their own; rows that were chosen are
// those of the phase.
bool is_told_elsewhere(const std::string& key, const std::optional<RunConfig>& before,
                       const RunConfig& config) {
  if (key.starts_with("phases")) return true;
  if (!before) return false;
  if (is_among(key, kRunLengthKeys)) return true;
  return key == "eval.galore_batch_rows" && !(before->phases.empty() && config.phases.empty());
}

void tell(const ChangedKey& change) {
  spdlog::log(is_among(change.key, kHarmless) ? spdlog::level::info : spdlog::level::warn,
              "resume: {} was {}, is now {}", change.key, change.before, change.now);
}

// Logs one line for all their keys.
void tell_new_phases(const std::vector<ChangedKey>& changes) {
  std::vector<std::string> keys;
  for (const ChangedKey& change : changes)
    if (change.key.starts_with("phases")) keys.push_back(change.key);
  if (!keys.empty())
    spdlog::warn("resume: {} of phases changed, first {}", counted(std::ssize(keys), "key"),
                 keys.front());
}

}  // namespace

void check_resumable(const TrainState& saved, const std::string& checkpoint,
                     const RunConfig& config) {
  if (!saved.config.is_object())
    throw error("{}: cannot be resumed: config of its state is {}, expected an object", checkpoint,
                describe(saved.config));
  if (holds_weights_only(saved))
    throw error(
        "{}: cannot be resumed: it holds only weights, without optimizer states. Start a "
        "new run from them with train.init_from",
        checkpoint);
  check_updates(saved, checkpoint);
  const std::optional<RunConfig> saved_run = saved_config(saved);
  nlohmann::json before = saved_keys(saved, saved_run),
                 now = nlohmann::json(resolved_json(config)).flatten();
  if (saved_run) {
    name_rows(before, *saved_run);
    name_rows(now, config);
  }
  const std::vector<ChangedKey> changes = changed_keys(before, now);
  refuse_fixed(changes, checkpoint);
  if (saved_run) check_bound(checkpoint, *saved_run, config);
  for (const ChangedKey& change : changes)
    if (!is_told_elsewhere(change.key, saved_run, config)) tell(change);
  tell_new_phases(changes);
  const int64_t steps = total_steps(config);
  if (saved.step > steps)
    throw error("{} is at step {}, beyond the end of the run at step {} (train.*)", checkpoint,
                saved.step, steps);
  if (saved_run) tell_new_length(saved.step, *saved_run, config);
}

namespace {

// CPU results depend neither on the CPU model nor on threads.
std::string device_of_results(const Device& device) {
  return device.backend() == Backend::kCpu ? "CPU" : device.name();
}

}  // namespace

nlohmann::json gemms_json(Device& device) {
  nlohmann::json choices = nlohmann::json::object();
  for (const GemmChoice& choice : device.gemm().choices()) choices[choice.key] = choice.algorithm;
  return {{"device", device_of_results(device)}, {"algorithms", choices}};
}

void restore_gemms(const TrainState& saved, const std::string& checkpoint, Device& device) {
  nlohmann::json gemms = extra_of(saved, "gemms");
  if (gemms.is_null()) gemms = extra_of(saved, "products");  // as version 0.2 names it
  if (gemms.is_null()) return;                               // saved by a version without this key
  const auto refuse = [&] {
    return error(
        "{}: cannot be resumed: extra.gemms of its state is {}; expected a device and "
        "algorithms",
        checkpoint, json_text(gemms));
  };
  if (!gemms.is_object() || !gemms.contains("device") || !gemms.contains("algorithms"))
    throw refuse();
  const nlohmann::json &name = gemms.at("device"), &algorithms = gemms.at("algorithms");
  if (!name.is_string() || !algorithms.is_object()) throw refuse();
  if (name.get<std::string>() != device_of_results(device))
    spdlog::warn("resume: the run moved from {} to {}", name.get<std::string>(),
                 device_of_results(device));
  std::vector<GemmChoice> choices;
  for (const auto& [key, algorithm] : algorithms.items()) {
    if (!algorithm.is_string()) throw refuse();
    choices.push_back({key, algorithm.get<std::string>()});
  }
  device.gemm().restore(choices);
}

int64_t saved_count(const TrainState& saved, const std::string& checkpoint,
                    const std::string& key) {
  const nlohmann::json value = extra_of(saved, key);
  if (value.is_number_integer() && value.get<int64_t>() >= 0) return value.get<int64_t>();
  throw error(
      "{}: cannot be continued: extra.{} of its state is {}; expected a whole number from 0",
      checkpoint, key, json_text(value));
}

}  // namespace mpt
