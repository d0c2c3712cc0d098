#include "train/reports/run_logger.h"

#include <algorithm>
#include <ranges>

#include <spdlog/spdlog.h>

#include "config/run_paths.h"
#include "core/check.h"
#include "core/json/json_parse.h"
#include "core/text/counted.h"
#include "core/text/units.h"

namespace mpt {
namespace {

constexpr std::chrono::seconds kLongStep{2};
constexpr int64_t kTimeColumns = 11;  // "[12:34:56] " before each line of the log

// How the log reports a step that is not finite.
std::string_view nonfinite_mark(NonfinitePolicy policy) {
  switch (policy) {
    case NonfinitePolicy::kSkipStep:
      return " | SKIPPED: not finite";
    case NonfinitePolicy::kRollback:
      return " | NOT FINITE: rolling back";
    case NonfinitePolicy::kStop:
      break;
  }
  return " | NOT FINITE: stopping";
}

std::string_view spike_mark(SpikePolicy policy) {
  switch (policy) {
    case SpikePolicy::kSkipStep:
      return " | SPIKE: skipped";
    case SpikePolicy::kRollback:
      return " | SPIKE: rolling back";
    case SpikePolicy::kStop:
      return " | SPIKE: stopping";
    case SpikePolicy::kWarn:
    case SpikePolicy::kOff:
      break;
  }
  return " | SPIKE";
}

std::string_view mark_of(const StepRecord& record, const TrainConfig& config) {
  if (record.spike) return spike_mark(config.spike_policy);
  return record.skipped ? nonfinite_mark(config.nonfinite_policy) : "";
}

// Returns null if the tensor's update was 0.
nlohmann::ordered_json ratio_json(const UpdateStatistics& tensor, const EffectSums& effect) {
  const std::optional<double> ratio = tensor.edq_ratio(effect);
  if (!ratio) return nullptr;
  return *ratio;
}

// Sizes of weights and updates.
nlohmann::ordered_json sizes_json(const UpdateStatistics& tensor) {
  nlohmann::ordered_json asked;
  for (size_t branch = 0; branch < size_t(tensor.branches); ++branch)
    asked[std::string(EnumNames<Branch>::kNames[branch])] = tensor.asked_rms(Branch(branch));
  const UpdateSums& sums = tensor.sums;
  nlohmann::ordered_json effect{{"weight_rms", tensor.weight_rms()},
                                {"asked_rms", std::move(asked)},
                                {"effective_rms", tensor.rms(sums.stored)},
                                {"edq_ratio", ratio_json(tensor, sums.stored)}};
  if (tensor.has_residuals)
    effect["with_residuals"] = {{"effective_rms", tensor.rms(sums.with_residuals)},
                                {"edq_ratio", ratio_json(tensor, sums.with_residuals)}};
  return effect;
}

nlohmann::ordered_json tensor_json(const UpdateStatistics& tensor) {
  nlohmann::ordered_json counted{{"weights", tensor.weights}};
  for (size_t branch = 0; branch < size_t(tensor.branches); ++branch) {
    nlohmann::ordered_json outcomes;
    for (size_t outcome = 0; outcome < size_t(kOutcomes); ++outcome)
      outcomes[std::string(EnumNames<UpdateOutcome>::kNames[outcome])] =
          tensor.outcomes[branch][outcome];
    counted[std::string(EnumNames<Branch>::kNames[branch])] = std::move(outcomes);
  }
  counted["dragged"] = tensor.dragged;
  counted["drag_log2"] = tensor.drag_log2;
  counted["saturated_blocks"] = tensor.saturated_blocks;
  counted["flipped"] = tensor.flipped();
  counted.update(sizes_json(tensor));
  return counted;
}

// The `update_survival` object of metrics.jsonl.
nlohmann::ordered_json update_statistics_json(std::span<const UpdateStatistics> tensors) {
  nlohmann::ordered_json all;
  for (const UpdateStatistics& tensor : tensors) all[tensor.name] = tensor_json(tensor);
  return {{"bucket_edges", bucket_edges()}, {"tensors", std::move(all)}};
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The `fp8_scaling` object.
nlohmann::ordered_json fp8_scaling_json(std::span<const Fp8OperandState> operands) {
  nlohmann::ordered_json all;
  for (const auto& [name, state] : operands)
    all[name] = {{"scale", state.scale},
                 {"amax", state.last_amax},
                 {"history_amax", state.history_amax},
                 {"frozen", state.frozen}};
  return all;
}

std::string quoted(const std::string& text) { return json_text(nlohmann::json(text)); }

}  // namespace

RunLogger::RunLogger(FileSystem& fs, const RunConfig& config, const Options& options)
    : fs_(fs),
      config_(config),
      options_(options),
      metrics_(fs, metrics_path(config)),
      progress_({.label = config.name, .total = options.total_steps - options.first_step}) {
  const std::string samples = samples_path(config);
  if (config.eval.samples_every > 0 || fs.exists(samples)) samples_.emplace(fs, samples);
  if (config.log.tensorboard) events_.emplace(fs, run_directory(config));
}

void RunLogger::mark_resume(int64_t step, const std::string& reason) {
  metrics_.mark_resume(step, reason);
  if (samples_) samples_->mark_resume(step, reason);
  if (events_) events_->restart(step + 1, wall_time());
}

void RunLogger::sync() {
  metrics_.sync();
  if (samples_) samples_->sync();
  if (events_) events_->sync();
}

void RunLogger::micro_batch_begins(int64_t step, int64_t micro_batch, int64_t of) {
  if (!Progress::on_terminal()) return;
  const auto now = std::chrono::steady_clock::now();
  if (micro_batch == 0) step_begun_ = now;
  if (now - step_begun_ < kLongStep) return;
  progress_.update(step - 1 - options_.first_step,
                   fmt::format("step {}: micro-batch {} of {}", step, micro_batch + 1, of));
}

void RunLogger::record(const StepRecord& record) {
  const nlohmann::ordered_json json = to_json(record);
  metrics_.append(json);
  if (events_) events_->scalars(record.step, wall_time(), scalars_of(json));
  ++seen_;
  const double weight = std::max(1.0 / double(seen_), 0.05);
  seconds_per_step_ += weight * (record.seconds - seconds_per_step_);
  const auto now = std::chrono::steady_clock::now();
  if (has_line(record, now)) {
    last_line_ = now;
    print(record);
  }
  if (!record.samples.empty()) record_samples(record.step, record.samples);
  if (Progress::on_terminal())
    progress_.update(record.step - options_.first_step,
                     fmt::format("loss {:.4f} | {} tokens/s", record.loss,
                                 format_count(double(record.step_tokens) / seconds_per_step_)));
}

bool RunLogger::has_line(const StepRecord& record,
                         std::chrono::steady_clock::time_point now) const {
  if (seen_ == 1 || record.step == options_.total_steps || record.validation || record.skipped ||
      record.spike)
    return true;
  return record.step % config_.log.every_steps == 0 &&
         std::chrono::duration<double>(now - last_line_).count() >= config_.log.every_seconds;
}

// Only the last record of a step counts (read_metrics).
void RunLogger::add_evaluation(int64_t step, const ValidationResult& result,
                               std::span<const SampleText> samples) {
  nlohmann::ordered_json record = recorded(step);
  const nlohmann::ordered_json validation = validation_json(result);
  record.update(validation);
  metrics_.append(record);
  if (events_) events_->scalars(step, wall_time(), scalars_of(validation));
  print_validation(step, result);
  if (!samples.empty()) record_samples(step, samples);
}

// Returns the record of a step in metrics.jsonl; only its number if that cannot be read.
nlohmann::ordered_json RunLogger::recorded(int64_t step) const {
  try {
    const std::map<int64_t, nlohmann::json> records = read_metrics(fs_, metrics_path(config_));
    if (const auto found = records.find(step); found != records.end()) return found->second;
  } catch (const Error& problem) {
    spdlog::warn("the record of step {} is not completed: {}", step, problem.what());
  }
  return {{"step", step}};
}

nlohmann::ordered_json RunLogger::to_json(const StepRecord& record) const {
  nlohmann::ordered_json json{{"step", record.step},
                              {"tokens", record.tokens},
                              {"loss", record.loss},
                              {"lr", main_rate(record)}};
  for (const PeakRate& rate : rates_of(config_.optimizer.rule) | std::views::drop(1))
    json[std::string(rate.key)] = record.lr_factor * rate.peak;
  json["grad_norm"] = record.grad_norm;
  json["data_hash"] = fmt::format("{:016x}", record.data_hash);
  if (record.skipped) json["skipped"] = true;
  if (record.spike)
    json["spike"] = {{"loss_z", record.spike->loss_z}, {"grad_norm_z", record.spike->grad_norm_z}};
  if (record.validation) json.update(validation_json(*record.validation));
  if (!record.update_statistics.empty())
    json["update_survival"] = update_statistics_json(record.update_statistics);
  if (!record.fp8.empty()) json["fp8_scaling"] = fp8_scaling_json(record.fp8);
  json["tokens_per_second"] = double(record.step_tokens) / record.seconds;
  json["step_seconds"] = record.seconds;
  if (!options_.attention.empty()) json["attention"] = options_.attention;
  return json;
}

// Learning rate of the additive branch, or of the only branch.
double RunLogger::main_rate(const StepRecord& record) const {
  return record.lr_factor * rates_of(config_.optimizer.rule).front().peak;
}

void RunLogger::print(const StepRecord& record) {
  progress_.clear();
  const double rate = double(record.step_tokens) / seconds_per_step_;
  const double left = seconds_per_step_ * double(options_.total_steps - record.step);
  const std::string mark(mark_of(record, config_.train));
  const std::string line =
      columns_that_fit({{fmt::format("step {:>6}/{}", record.step, options_.total_steps), 0},
                        {fmt::format("loss {:.4f}", record.loss), 1},
                        {fmt::format("lr {:.2e}", main_rate(record)), 4},
                        {fmt::format("gradient norm {:.3f}", record.grad_norm), 5},
                        {fmt::format("{:.0f} ms", 1e3 * record.seconds), 6},
                        {fmt::format("{} tokens/s", format_count(rate)), 2},
                        {fmt::format("{} left", format_duration(left)), 3}},
                       terminal_columns() - kTimeColumns - int64_t(mark.size()));
  spdlog::log(mark.empty() ? spdlog::level::info : spdlog::level::warn, "{}{}", line, mark);
  if (record.validation) print_validation(record.step, *record.validation);
}

void RunLogger::print_validation(int64_t step, const ValidationResult& result) const {
  for (const auto& [name, mean] : result.sets) print_validation(step, name, mean);
  print_validation(step, "", result.all);
}

// Quoted, so that each is a single line of the log.
void RunLogger::record_samples(int64_t step, std::span<const SampleText> samples) {
  samples_->append(samples_json(step, samples));
  progress_.clear();
  for (const SampleText& sample : samples)
    spdlog::info("step {:>6}/{} | sample {} -> {}{}", step, options_.total_steps,
                 quoted(sample.prompt), quoted(sample.text), sample.finite ? "" : " | NOT FINITE");
}

void RunLogger::print_validation(int64_t step, const std::string& name,
                                 const Evaluation& mean) const {
  spdlog::info(
      "step {:>6}/{} | {}validation loss {:.4f} | perplexity {:.3f}{} | on {} tokens", step,
      options_.total_steps, name.empty() ? "" : name + ": ", mean.loss, mean.perplexity(),
      mean.bits_per_byte ? fmt::format(" | {:.4f} bits per byte", *mean.bits_per_byte) : "",
      format_count(double(mean.tokens)));
}

}  // namespace mpt
