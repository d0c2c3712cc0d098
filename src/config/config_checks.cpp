#include <algorithm>
#include <map>

#include "config/run_config_json.h"
#include "config/run_data.h"
#include "core/check.h"
#include "model/parameters.h"
#include "optim/adam_moments.h"
#include "precision/fp8_ops.h"

namespace mpt {
namespace {

class Checker {
 public:
  // `phase` is "phases.2" if the config is that of a phase, whose sections are there.
  Checker(const RunConfig& config, const JsonDocument& document, std::string phase = "")
      : config_(config), document_(document), phase_(std::move(phase)) {}

  Problems run() {
    check_name();
    check_corpora();
    check_validation_sets();
    check_samples();
    check_model();
    check_precision();
    check_weight_codes();
    check_data();
    check_batch();
    check_length();
    check_phases();
    check_schedule();
    check_optimizer();
    check_checkpoint();
    require(!config_.train.init_from || !config_.train.init_from->empty(), "train.init_from",
            "must not be empty; null starts from random weights");
    require(!config_.train.init_from_other_rope || config_.train.init_from,
            "train.init_from_other_rope", "is true, but train.init_from is not set");
    if (problems_.empty()) check_run_phases();
    return std::move(problems_);
  }
  // Checks the sections that a phase may have of its own.
  Problems run_on_phase() {
    check_precision();
    check_batch();
    check_optimizer();
    return std::move(problems_);
  }

 private:
  // Reports a problem with keys; the first key is the one to blame: "file:line: a.b: what".
  template <class... Args>
  void require(bool holds, std::string_view key, fmt::format_string<Args...> format,
               Args&&... args) {
    if (holds) return;
    const std::string placed = placed_key(key);
    problems_.push_back(fmt::format("{}: {}: {}", document_.source_of(placed), placed,
                                    fmt::format(format, std::forward<Args>(args)...)));
    throw_many_problems(problems_);
  }
  [[nodiscard]] std::string placed_key(std::string_view key) const {
    const bool own =
        key.starts_with("precision.") || key.starts_with("optimizer.") || key.starts_with("batch.");
    return std::string(own && !phase_.empty() ? join_key_path(phase_, key) : key);
  }
  // " (configs/base/bf16.json:3)": location of a second key that a message names
  [[nodiscard]] std::string at(std::string_view key) const {
    return fmt::format(" ({})", document_.source_of(placed_key(key)));
  }

  void check_name() {
    const std::string& name = config_.name;
    const bool good =
        !name.empty() && name.find('/') == std::string::npos && !name.starts_with('.');
    require(good, "name", "must not be empty, contain '/' or start with '.', found \"{}\"", name);
    require(name.size() <= 200, "name", "must be at most 200 bytes long, found {}", name.size());
    require(!config_.output_dir.empty(), "output_dir", "must not be empty");
  }

  // A name serves as a key in metrics and checkpoints, and as a word in log lines.
  void require_name(std::string_view key, const std::string& name) {
    constexpr std::string_view kAccepted =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    require(!name.empty() && name.find_first_not_of(kAccepted) == std::string::npos, key,
            "names may hold letters, digits, '_', '-' and '.', found \"{}\"", name);
  }

  [[nodiscard]] bool corpora_have_names() const {
    const std::vector<CorpusConfig>& corpora = config_.data.train;
    return corpora.size() > 1 || (corpora.size() == 1 && corpora.front().as_texts() == nullptr);
  }

  void check_corpora() {
    if (!corpora_have_names()) return;
    std::map<std::string, double> weights;
    for (const CorpusConfig& corpus : config_.data.train) {
      require_name("data.train", corpus.name);
      require(!corpus.files.empty(), "data.train", "{} has no files", corpus.name);
      require(weights.try_emplace(corpus.name, corpus.weight).second, "data.train",
              "two corpora are named {}", corpus.name);
    }
    require_shares("data.train", weights);
  }

  void require_shares(std::string_view key, const std::map<std::string, double>& weights) {
    try {
      shares_of(weights);
    } catch (const Error& problem) {
      require(false, key, "{}", problem.what());
    }
  }

  void check_phases() {
    const std::vector<MixturePhaseConfig>& phases = config_.data.phases;
    if (phases.empty()) return;
    const bool named = corpora_have_names();
    require(named, "data.phases", "data.train{} has no named corpora that could have weights",
            at("data.train"));
    int64_t before = 0;
    for (const MixturePhaseConfig& phase : phases) {
      if (named) check_weights_of(phase);
      if (!has_length_) continue;
      const int64_t begins = first_step_of(phase, total_steps(config_));
      require(begins > before, "data.phases",
              "from = {} begins after step {}, not after the one before, {}", phase.from, begins,
              before);
      require(begins < total_steps(config_), "data.phases",
              "from = {} begins after the last of the {} steps", phase.from, total_steps(config_));
      before = begins;
    }
  }

  void check_weights_of(const MixturePhaseConfig& phase) {
    std::map<std::string, double> weights;
    for (const auto& [name, weight] : phase.weights) {
      const bool known = std::ranges::any_of(
          config_.data.train, [&, n = name](const CorpusConfig& one) { return one.name == n; });
      require(known, "data.phases", "from = {} gives a weight to {}, which is not in data.train{}",
              phase.from, name, at("data.train"));
      weights[name] = weight;
    }
    for (const CorpusConfig& corpus : config_.data.train)
      require(weights.contains(corpus.name), "data.phases",
              "from = {} gives no weight to {}; 0 leaves it out", phase.from, corpus.name);
    require_shares("data.phases", weights);
  }

  void check_run_phases() {
    if (config_.phases.empty()) return;
    int64_t done = 0;
    for (const RunPhase& phase : run_phases(config_)) {
      require(phase.last_step > done, "phases",
              "a phase ends with step {}, not after the one before it, {}", phase.last_step, done);
      done = phase.last_step;
    }
    require(config_.phases.back().until == 1, "phases",
            "the last one ends with until = {}, not with the run; expected 1",
            config_.phases.back().until);
    for (size_t i = 0; i < config_.phases.size(); ++i) check_run_phase(i);
  }

  void check_run_phase(size_t number) {
    const std::string place = join_key_path("phases", std::to_string(number));
    const BatchConfig& batch = config_.phases[number].batch;
    require(batch.seq_len == config_.batch.seq_len, join_key_path(place, "batch.seq_len"),
            "{} is not batch.seq_len = {}{}; rows are as long in every phase", batch.seq_len,
            config_.batch.seq_len, at("batch.seq_len"));
    RunConfig own = config_;
    own.precision = config_.phases[number].precision;
    own.optimizer = config_.phases[number].optimizer;
    own.batch = batch;
    for (std::string& problem : Checker(own, document_, place).run_on_phase())
      problems_.push_back(std::move(problem));
  }

  void check_validation_sets() {
    for (const auto& [name, files] : config_.data.validation) {
      if (name.empty() && config_.data.validation.size() == 1) continue;
      require_name("data.validation", name);
      require(!files.empty(), "data.validation", "{} has no files", name);
    }
  }

  void check_samples() {
    constexpr size_t kMostPrompts = 256;
    const std::vector<std::string>& prompts = config_.eval.sample_prompts;
    require(config_.eval.samples_every == 0 || !prompts.empty(), "eval.samples_every",
            "needs texts to continue in eval.sample_prompts, which is empty");
    require(prompts.size() <= kMostPrompts, "eval.sample_prompts",
            "must be at most {} texts, found {}", kMostPrompts, prompts.size());
  }

  void check_model() {
    check_heads();
    const RopeScaling& scaling = config_.model.rope_scaling;
    require(scaling.rope_type != RopeType::kLlama3 ||
                scaling.low_freq_factor < scaling.high_freq_factor,
            "model.rope_scaling.high_freq_factor",
            "must be greater than model.rope_scaling.low_freq_factor = {}{}, found {}",
            scaling.low_freq_factor, at("model.rope_scaling.low_freq_factor"),
            scaling.high_freq_factor);
  }

  void check_heads() {
    const LlamaConfig& model = config_.model;
    const int64_t heads = model.num_attention_heads;
    require(heads % model.key_value_heads() == 0, "model.num_key_value_heads",
            "{} does not divide model.num_attention_heads = {}{}", model.key_value_heads(), heads,
            at("model.num_attention_heads"));
    if (model.head_size) {
      require(*model.head_size % 2 == 0, "model.head_dim",
              "heads of {} elements cannot be rotated in pairs; the size of a head must be even",
              *model.head_size);
      return;
    }
    const bool divides = model.hidden_size % heads == 0;
    require(divides, "model.hidden_size",
            "{} is not divisible by model.num_attention_heads = {}{}, and model.head_dim is not "
            "given",
            model.hidden_size, heads, at("model.num_attention_heads"));
    require(!divides || model.head_dim() % 2 == 0, "model.num_attention_heads",
            "heads of {} / {} = {} elements cannot be rotated in pairs; the size of a head must be "
            "even (model.hidden_size is {}{})",
            model.hidden_size, heads, model.hidden_size / heads, model.hidden_size,
            at("model.hidden_size"));
  }

  void check_precision() {
    const PrecisionConfig& precision = config_.precision;
    const int64_t block = precision.fp8_block_size;
    require((block & (block - 1)) == 0, "precision.fp8_block_size",
            "must be 16, 32, 64, 128 or 256, found {}", block);
    require(precision.state_update == StateUpdate::kOnce ||
                precision.state_rounding == Rounding::kNearest,
            "precision.state_rounding",
            "stochastic cannot be combined with precision.state_update = per_op{}, whose moments "
            "are bf16 before they are stored; accepted: nearest",
            at("precision.state_update"));
    require(precision.compute != ComputeFormat::kTf32 || config_.device.type != DeviceType::kCpu,
            "precision.compute",
            "tf32 is not available on the CPU (device.type = {}{}), which computes in fp32; set "
            "precision.compute to fp32 or device.type to cuda",
            name_of(config_.device.type), at("device.type"));
    if (precision.compute == ComputeFormat::kFp8) check_fp8_shapes();
  }

  void check_weight_codes() {
    const auto in_fp8 = [](const auto& part) {
      return part.precision.compute == ComputeFormat::kFp8;
    };
    const std::vector<PhaseConfig>& phases = config_.phases;
    require(config_.device.fp8_weight_codes == Fp8WeightCodes::kAuto ||
                (phases.empty() ? in_fp8(config_) : std::ranges::any_of(phases, in_fp8)),
            "device.fp8_weight_codes", "only with precision.compute = fp8; it is {}{}{}",
            name_of(config_.precision.compute), at("precision.compute"),
            phases.empty() ? "" : ", and no phase has fp8");
  }

  // Shape requirements of FP8 GEMMs.
  void check_fp8_shapes() {
    const auto aligned = [&](std::string_view key, int64_t value, std::string_view what) {
      require(value % kFp8Multiple == 0, key,
              "{}{} is not a multiple of {}, which precision.compute = fp8{} needs", what, value,
              kFp8Multiple, at("precision.compute"));
    };
    aligned("model.hidden_size", config_.model.hidden_size, "");
    const LlamaConfig& model = config_.model;
    if (model.query_width() != model.hidden_size)
      aligned("model.head_dim", model.query_width(),
              fmt::format("{} query heads of {} elements are {} wide, and ",
                          model.num_attention_heads, model.head_dim(), model.query_width()));
    if (model.key_value_heads() != model.num_attention_heads)
      aligned("model.num_key_value_heads", model.key_value_width(),
              fmt::format("{} heads of {} elements are {} wide, and ", model.key_value_heads(),
                          model.head_dim(), model.key_value_width()));
    aligned("model.pad_multiple", padded_intermediate_size(config_.model),
            fmt::format("rounds model.intermediate_size = {} to {}, and ",
                        config_.model.intermediate_size, padded_intermediate_size(config_.model)));
    aligned("batch.seq_len", config_.batch.seq_len, "");
    if (!config_.precision.fp8_lm_head) return;
    aligned("model.vocab_size", config_.model.vocab_size, "");
    aligned("train.loss_chunk_rows", config_.train.loss_chunk_rows,
            "");  // 0 (automatic) is also a multiple
  }

  void check_data() {
    const DataConfig& data = config_.data;
    require(data.pack || data.packing == Packing::kStream, "data.packing",
            "{} cannot be combined with data.pack = false{}, which gives every document a row; "
            "accepted: stream",
            name_of(data.packing), at("data.pack"));
    const bool documents = data.attention == AttentionScope::kDocument;
    require(data.pack || !documents, "data.attention",
            "document cannot be combined with data.pack = false{}, whose rows have one document "
            "each; accepted: row",
            at("data.pack"));
  }

  void check_batch() {
    const BatchConfig& batch = config_.batch;
    const bool whole_rows = batch.tokens_per_step % batch.seq_len == 0;
    require(whole_rows, "batch.tokens_per_step", "{} is not a multiple of batch.seq_len = {}{}",
            batch.tokens_per_step, batch.seq_len, at("batch.seq_len"));
    if (!whole_rows || batch.micro_batch_rows == 0) return;
    require(batch.rows_per_step() % batch.micro_batch_rows == 0, "batch.micro_batch_rows",
            "{} does not divide the {} rows of a step (batch.tokens_per_step = {} / batch.seq_len "
            "= {})",
            batch.micro_batch_rows, batch.rows_per_step(), batch.tokens_per_step, batch.seq_len);
  }

  void check_length() {
    const TrainConfig& train = config_.train;
    Problems found;
    if (train.steps)
      found.push_back(fmt::format("train.steps = {}{}", *train.steps, at("train.steps")));
    if (train.tokens)
      found.push_back(fmt::format("train.tokens = {}{}", *train.tokens, at("train.tokens")));
    if (train.chinchilla)
      found.push_back(
          fmt::format("train.chinchilla = {}{}", *train.chinchilla, at("train.chinchilla")));
    has_length_ = found.size() == 1;
    require(has_length_, "train",
            "exactly one of train.steps, train.tokens and train.chinchilla is needed, found {}; "
            "null unsets the value of an included file, as in --set train.steps=null",
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
            "cannot be combined with schedule.warmup_fraction{}; give one of them",
            at("schedule.warmup_fraction"));
    if (!has_length_) return;
    const int64_t steps = total_steps(config_);
    const int64_t warmup = schedule.warmup_updates(steps);
    require(warmup <= steps, "schedule.warmup_steps", "{} is more than the {} steps of the run{}",
            warmup, steps, at("train"));
    if (schedule.shape != ScheduleShape::kWsd || warmup > steps) return;
    const int64_t decay = schedule.decay_updates(steps);
    require(warmup + decay <= steps, "schedule.decay_fraction",
            "{} of {} steps is {} steps of decay; with {} of warmup they exceed the run",
            schedule.decay_fraction, steps, decay, warmup);
  }

  void check_optimizer() {
    const OptimizerConfig& optimizer = config_.optimizer;
    check_rule(
        optimizer.rule,
        {.problem =
             [&](std::string_view key, const std::string& what) {
               require(false, join_key_path("optimizer", key), "{}", what);
             },
         .place = [&](std::string_view key) { return at(join_key_path("optimizer", key)); }});
    check_kahan();
    check_residual();
    check_error_feedback();
    const AdditiveConfig* const additive = additive_of(optimizer.rule);
    require(additive == nullptr || additive->nvfp4_additive_scale == Nvfp4AdditiveScale::kOff ||
                has_relative_scales(config_.precision.weights),
            "optimizer.nvfp4_additive_scale",
            "block requires precision.weights = {}; precision.weights is {}{}",
            formats_with_relative_scales(), name_of(config_.precision.weights),
            at("precision.weights"));
    if (const auto projection = projection_options(optimizer.rule)) check_projection(*projection);
  }

  void check_residual() {
    const WeightRounding rounding = config_.optimizer.weight_rounding;
    const WeightFormat weights = config_.precision.weights;
    require(!completes_bf16(rounding) || weights == plain_format(DType::kBF16),
            "optimizer.weight_rounding",
            "{} cannot be combined with precision.weights = {}{}: it completes a bf16 weight; "
            "accepted: bf16",
            name_of(rounding), name_of(weights), at("precision.weights"));
    require(rounding != WeightRounding::kMaster || weights != plain_format(DType::kF32),
            "optimizer.weight_rounding",
            "master cannot be combined with precision.weights = fp32{}: such weights need no copy",
            at("precision.weights"));
  }

  void check_error_feedback() {
    const OptimizerConfig& optimizer = config_.optimizer;
    if (optimizer.error_feedback == ErrorFeedbackMode::kOff) return;
    require(takes_errors(optimizer.rule), "optimizer.error_feedback",
            "momentum cannot be combined with optimizer.rule = {}{}; accepted: {}",
            rule_name(optimizer.rule), at("optimizer.rule"), rules_that_take_errors());
    const auto* const adam = adam_of(optimizer.rule);
    require(adam == nullptr || adam->beta1 > 0, "optimizer.error_feedback",
            "momentum requires optimizer.beta1 > 0{}: without a mean nothing is returned later",
            at("optimizer.beta1"));
    require(adam == nullptr || adam->nvfp4_additive_scale == Nvfp4AdditiveScale::kOff,
            "optimizer.error_feedback",
            "momentum cannot be combined with optimizer.nvfp4_additive_scale = block{}",
            at("optimizer.nvfp4_additive_scale"));
  }

  void check_kahan() {
    if (config_.optimizer.weight_rounding != WeightRounding::kKahan) return;
    require(config_.optimizer.kahan_variant == KahanVariant::kFused ||
                has_eager_kahan(config_.optimizer.rule),
            "optimizer.kahan_variant",
            "per_op cannot be combined with optimizer.rule = {}{}; accepted: {}",
            rule_name(config_.optimizer.rule), at("optimizer.rule"), rules_with_eager_kahan());
  }

  void check_projection(const ProjectionOptions& projection) {
    const LlamaConfig& m = config_.model;
    const int64_t smallest =
        std::min({m.hidden_size, m.intermediate_size, m.query_width(), m.key_value_width()});
    require(projection.rank <= smallest, "optimizer.apollo_e_rank",
            "{} is more than the smallest side of a linear layer, {} (model.hidden_size = {}, "
            "model.intermediate_size = {}, queries {} and keys {} wide)",
            projection.rank, smallest, m.hidden_size, m.intermediate_size, m.query_width(),
            m.key_value_width());
  }

  void check_checkpoint() {
    const CheckpointConfig& checkpoint = config_.checkpoint;
    if (checkpoint.keep_every_steps == 0) return;
    const bool reached =
        checkpoint.every_steps > 0 && checkpoint.keep_every_steps % checkpoint.every_steps == 0;
    require(reached, "checkpoint.keep_every_steps",
            "{} is not a multiple of checkpoint.every_steps = {}{}", checkpoint.keep_every_steps,
            checkpoint.every_steps, at("checkpoint.every_steps"));
  }

  const RunConfig& config_;
  const JsonDocument& document_;
  std::string phase_;
  Problems problems_;
  bool has_length_ = false;
};

}  // namespace

Problems clashes(const RunConfig& config, const JsonDocument& document) {
  return Checker(config, document).run();
}

}  // namespace mpt
