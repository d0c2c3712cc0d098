#include "train/run_config_checks.h"

#include "core/check.h"

namespace mpt {
namespace {

class Checker {
 public:
  Checker(const RunConfig& config, const JsonDocument& document) : config_(config), document_(document) {}

  Problems run() {
    check_name();
    check_model();
    check_precision();
    check_batch();
    check_length();
    check_schedule();
    check_optimizer();
    check_checkpoint();
    return std::move(problems_);
  }

 private:
  // Reports a problem of keys, the first being the one to blame: "file:line: a.b: what".
  template <class... Args>
  void require(bool holds, std::string_view key, fmt::format_string<Args...> format, Args&&... args) {
    if (holds) return;
    problems_.push_back(fmt::format("{}: {}: {}", document_.source_of(key), key,
                                    fmt::format(format, std::forward<Args>(args)...)));
  }
  // " (configs/base/bf16.json:3)": where a second key that a message names was written
  [[nodiscard]] std::string at(std::string_view key) const {
    return fmt::format(" ({})", document_.source_of(key));
  }

  void check_name() {
    const std::string& name = config_.name;
    const bool good = !name.empty() && name.find('/') == std::string::npos && !name.starts_with('.');
    require(good, "name", "must not be empty, contain '/' or start with '.', found \"{}\"", name);
    require(name.size() <= 200, "name", "must be at most 200 bytes long, found {}", name.size());
    require(!config_.output_dir.empty(), "output_dir", "must not be empty");
  }

  void check_model() {
    const LlamaConfig& model = config_.model;
    const bool divides = model.hidden_size % model.num_attention_heads == 0;
    require(divides, "model.hidden_size", "{} is not divisible by model.num_attention_heads = {}{}",
            model.hidden_size, model.num_attention_heads, at("model.num_attention_heads"));
    require(!divides || model.head_dim() % 2 == 0, "model.num_attention_heads",
            "heads of {} / {} = {} elements cannot be rotated in pairs; the size of a head "
            "must be even (model.hidden_size is {}{})",
            model.hidden_size, model.num_attention_heads, model.hidden_size / model.num_attention_heads,
            model.hidden_size, at("model.hidden_size"));
  }

  void check_precision() {
    const PrecisionConfig& precision = config_.precision;
    require(static_cast<int>(precision.weights) == static_cast<int>(precision.compute), "precision.weights",
            "{} does not go with precision.compute = {}{}; accepted pairs: weights fp32 with compute fp32, "
            "weights bf16 with compute bf16",
            name_of(precision.weights), name_of(precision.compute), at("precision.compute"));
    require(precision.weights != WeightFormat::kF32 || precision.gradient == Format::kF32, "precision.gradient",
            "{} does not go with precision.weights = fp32{}; accepted: fp32", name_of(precision.gradient),
            at("precision.weights"));
  }

  void check_batch() {
    const BatchConfig& batch = config_.batch;
    const bool whole_rows = batch.tokens_per_step % batch.seq_len == 0;
    require(whole_rows, "batch.tokens_per_step", "{} is not a multiple of batch.seq_len = {}{}",
            batch.tokens_per_step, batch.seq_len, at("batch.seq_len"));
    if (!whole_rows || batch.micro_batch_rows == 0) return;
    require(batch.rows_per_step() % batch.micro_batch_rows == 0, "batch.micro_batch_rows",
            "{} does not divide the {} rows of a step (batch.tokens_per_step = {} / batch.seq_len = {})",
            batch.micro_batch_rows, batch.rows_per_step(), batch.tokens_per_step, batch.seq_len);
  }

  void check_length() {
    const TrainConfig& train = config_.train;
    Problems found;
    if (train.steps) found.push_back(fmt::format("train.steps = {}{}", *train.steps, at("train.steps")));
    if (train.tokens) found.push_back(fmt::format("train.tokens = {}{}", *train.tokens, at("train.tokens")));
    if (train.chinchilla)
      found.push_back(fmt::format("train.chinchilla = {}{}", *train.chinchilla, at("train.chinchilla")));
    has_length_ = found.size() == 1;
    require(
        has_length_, "train",
        "exactly one of train.steps, train.tokens and train.chinchilla is needed, found {}; null unsets what "
        "an included file says, as in --set train.steps=null",
        found.empty() ? "none" : fmt::format("{}", fmt::join(found, " and ")));
    if (!has_length_) return;
    constexpr int64_t kMostSteps = 1'000'000'000;
    const int64_t steps = total_steps(config_);
    require(steps <= kMostSteps, train.tokens ? "train.tokens" : "train.chinchilla",
            "makes {} steps of {} tokens; at most {} steps are accepted", steps,
            config_.batch.tokens_per_step, kMostSteps);
  }

  void check_schedule() {
    const ScheduleConfig& schedule = config_.schedule;
    require(!schedule.warmup_steps || !schedule.warmup_fraction, "schedule.warmup_steps",
            "excludes schedule.warmup_fraction{}; give one of them", at("schedule.warmup_fraction"));
    if (!has_length_) return;
    const int64_t steps = total_steps(config_);
    const int64_t warmup = schedule.warmup_updates(steps);
    require(warmup <= steps, "schedule.warmup_steps", "{} is more than the {} steps of the run{}", warmup,
            steps, at("train"));
    if (schedule.shape != ScheduleShape::kWsd || warmup > steps) return;
    const int64_t decay = schedule.decay_updates(steps);
    require(warmup + decay <= steps, "schedule.decay_fraction",
            "{} of {} steps is {} steps of decay; with {} of warmup they are more than the run has",
            schedule.decay_fraction, steps, decay, warmup);
  }

  void check_optimizer() {
    constexpr double kMargin = 1e-6;  // the lower bound of the relative step is -(clip - 1e-6)
    const double clip = config_.optimizer.clip_relative_step;
    require(clip == 0 || clip > kMargin, "optimizer.clip_relative_step",
            "must be 0 (off) or greater than {}, found {}", kMargin, clip);
  }

  void check_checkpoint() {
    const CheckpointConfig& checkpoint = config_.checkpoint;
    if (checkpoint.keep_every_steps == 0) return;
    const bool reached =
        checkpoint.every_steps > 0 && checkpoint.keep_every_steps % checkpoint.every_steps == 0;
    require(reached, "checkpoint.keep_every_steps", "{} is not a multiple of checkpoint.every_steps = {}{}",
            checkpoint.keep_every_steps, checkpoint.every_steps, at("checkpoint.every_steps"));
  }

  const RunConfig& config_;
  const JsonDocument& document_;
  Problems problems_;
  bool has_length_ = false;
};

}  // namespace

Problems clashes(const RunConfig& config, const JsonDocument& document) {
  return Checker(config, document).run();
}

}  // namespace mpt
