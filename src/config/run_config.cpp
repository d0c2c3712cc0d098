#include "config/run_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include <spdlog/spdlog.h>

#include "config/run_config_json.h"
#include "config/usual_spellings.h"
#include "core/check.h"
#include "core/io/file_system.h"
#include "core/json/config_reader.h"
#include "core/json/config_writer.h"
#include "core/json/json_parse.h"
#include "core/text/suggestion.h"

namespace mpt {
namespace {

// Counts a step with the average number of tokens over all phases.
int64_t steps_for_tokens(int64_t tokens, const RunConfig& config) {
  int64_t same = config.phases.empty() ? config.batch.tokens_per_step
                                       : config.phases.front().batch.tokens_per_step;
  double mean = 0, before = 0;
  for (const PhaseConfig& phase : config.phases) {
    mean += (phase.until - before) * double(phase.batch.tokens_per_step);
    before = phase.until;
    if (phase.batch.tokens_per_step != same) same = 0;
  }
  if (same > 0) return tokens / same + (tokens % same != 0);
  return std::llround(std::ceil(double(tokens) / std::max(mean, 1.0)));
}

// The last step of a phase in a run of `steps` steps.
int64_t last_step_of(const PhaseConfig& phase, int64_t steps) {
  return std::llround(phase.until * double(steps));
}

// Each phase has its own sections and is checked like a run.
void require_few_phases(const JsonDocument& document) {
  constexpr size_t kMostPhases = 100;
  const auto phases = document.root().find("phases");
  if (phases != document.root().end() && phases->is_array() && phases->size() > kMostPhases)
    throw error("{}: phases has {} elements; at most {} are accepted", document.source_of("phases"),
                phases->size(), kMostPhases);
}

}  // namespace

RunConfig load_run_config(const std::string& path, const std::vector<std::string>& overrides) {
  JsonDocument document = JsonDocument::load(find_config(path), config_directories());
  for (const std::string& assignment : overrides) document.set(assignment);
  RunConfig config = parse_run_config(document);
  validate(config);  // the config that a checkpoint stores can be read again
  return config;
}

RunConfig parse_run_config(JsonDocument document) {
  RunConfig config;
  require_few_phases(document);
  use_present_names(document, Fields::of(config));
  for (const char* const section : {"precision", "optimizer", "batch"})
    document.inherit("phases", section);
  Problems problems;
  LeftOut left_out;
  read_fields(document, Fields::of(config), problems, usual_spellings(), &left_out);
  throw_problems(problems);
  std::erase_if(left_out, [](const std::string& key) { return key.starts_with("phases."); });
  if (!left_out.empty())
    spdlog::info("ignored, because {} has no such key: {}", rule_name(config.optimizer.rule),
                 fmt::join(left_out, ", "));
  throw_problems(clashes(config, document));
  if (!config.schedule.warmup_steps && !config.schedule.warmup_fraction)
    config.schedule.warmup_fraction = ScheduleConfig::kDefaultWarmupFraction;
  return config;
}

void validate(const RunConfig& config) {
  (void)parse_run_config(JsonDocument::of_value(resolved_json(config), "config"));
}

void require_training_data(const RunConfig& config) {
  if (config.data.train.empty())
    throw error(
        "data.train: no training shards are given; set it to a list of files or globs, as in --set "
        "data.train=data/train_*.bin");
}

void require_rows(const BatchConfig& batch, int64_t ranks) {
  if (batch.rows_per_step() < ranks)
    throw error(
        "{} ranks for the {} rows of a step (batch.tokens_per_step = {} / batch.seq_len = {}): "
        "every rank needs at least one",
        ranks, batch.rows_per_step(), batch.tokens_per_step, batch.seq_len);
}

int64_t total_steps(const RunConfig& config) {
  constexpr double kTokensPerParameter = 20;
  const TrainConfig& train = config.train;
  if (train.steps) return *train.steps;
  if (train.tokens) return steps_for_tokens(*train.tokens, config);
  check(train.chinchilla.has_value(), "the run has no length");
  const double tokens = std::ceil(*train.chinchilla * kTokensPerParameter *
                                  static_cast<double>(parameter_count(config.model)));
  constexpr double kLongest = 1e18;  // above validate()'s limit, still fits int64_t
  return steps_for_tokens(static_cast<int64_t>(std::min(tokens, kLongest)), config);
}

std::vector<RunPhase> run_phases(const RunConfig& config) {
  const int64_t steps = total_steps(config);
  if (config.phases.empty()) return {{0, steps, config}};
  std::vector<RunPhase> phases;
  int64_t done = 0;
  for (const PhaseConfig& phase : config.phases) {
    RunConfig own = config;
    own.precision = phase.precision;
    own.optimizer = phase.optimizer;
    own.batch = phase.batch;
    const int64_t last = last_step_of(phase, steps);
    phases.push_back({std::exchange(done, last), last, std::move(own)});
  }
  return phases;
}

size_t phase_after(const std::vector<RunPhase>& phases, int64_t steps_done) {
  size_t number = 0;
  while (number + 1 < phases.size() && steps_done >= phases[number].last_step) ++number;
  return number;
}

int64_t rows_of_steps(const RunConfig& config, int64_t steps) {
  if (config.phases.empty()) return steps * config.batch.rows_per_step();
  const int64_t all = total_steps(config);
  int64_t rows = 0, done = 0;
  for (const PhaseConfig& phase : config.phases) {
    const int64_t last = std::min(last_step_of(phase, all), steps);
    if (last > done) rows += (last - std::exchange(done, last)) * phase.batch.rows_per_step();
  }
  return rows;
}

int64_t total_tokens(const RunConfig& config) {
  return rows_of_steps(config, total_steps(config)) * config.batch.seq_len;
}

int64_t galore_batch_rows(const RunConfig& config) {
  const int64_t rows = config.eval.galore_batch_rows;
  return rows > 0 ? rows : config.batch.rows_per_micro_batch();
}

Json resolved_json(const RunConfig& config) { return write_fields(config); }

Json run_config_schema() {
  Json schema{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
              {"title", "mpretrain run config"},
              {"description",
               "Configuration of an mpretrain run, or a part of one to include. Generated by "
               "`mpretrain schema`; // and /* */ comments are accepted. null unsets a value set by "
               "an included part."}};
  Json fields = schema_of_fields(RunConfig{});
  fields["type"] = "object";
  fields["properties"]["$schema"] = {{"description", "Path of this schema, for editors"},
                                     {"type", "string"}};
  fields["properties"]["include"] = {
      {"description",
       "Parts merged left to right, overridden by this file's keys; looked up next to this file, "
       "then in ./configs and in the installed configs"},
      {"type", "array"},
      {"items", {{"type", "string"}}}};
  schema.update(fields);
  return schema;
}

std::string schema_text() { return json_text(run_config_schema(), 2) + "\n"; }

// Lookup of a config by its bare name.

namespace fs = std::filesystem;
namespace {

constexpr const char* kEnding = ".json";

// `path`, or `path` with ".json" appended; "" if neither exists.
std::string existing(const fs::path& path) {
  if (has_reachable_file(path.string())) return path.string();
  const std::string longer = path.string() + kEnding;
  return has_reachable_file(longer) ? longer : "";
}

// " (did you mean ...?)": the nearest config in these directories, or "".
std::string nearest_config(const fs::path& path, const std::vector<std::string>& directories) {
  std::vector<std::string> names;
  for (const std::string& directory : directories) {
    std::error_code failure;
    for (const auto& entry : fs::directory_iterator(directory, failure))
      if (entry.path().extension() == kEnding) names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  const std::string name = path.filename().string();
  const auto nearest = nearest_name(name.ends_with(kEnding) ? name : name + kEnding, names);
  return nearest ? fmt::format(" (did you mean {}?)", (path.parent_path() / *nearest).string())
                 : "";
}

}  // namespace

// An installed program is in <prefix>/bin next to <prefix>/share; a built one is inside the source
// tree.
std::vector<std::string> config_directories() {
  constexpr int kLevels = 4;
  std::vector<std::string> directories{"configs"};
  std::error_code failure;
  fs::path above = fs::read_symlink("/proc/self/exe", failure).parent_path();
  for (int level = 0; level < kLevels && above.has_relative_path();
       ++level, above = above.parent_path()) {
    directories.push_back((above / "share" / "mpretrain" / "configs").string());
    directories.push_back((above / "configs").string());
  }
  return directories;
}

std::string find_config(const std::string& path) {
  if (path.empty()) throw error("--config: the name of the config file is empty");
  if (const std::string found = existing(path); !found.empty()) return found;
  if (fs::path(path).has_parent_path())
    throw error("{}: no such file{}", path,
                nearest_config(path, {fs::path(path).parent_path().string()}));
  std::vector<std::string> directories = config_directories();
  std::string looked = fmt::format("\n  {}", path);
  for (const std::string& directory : directories) {
    const fs::path candidate = fs::path(directory) / path;
    if (const std::string found = existing(candidate); !found.empty()) return found;
    looked += fmt::format("\n  {}", candidate.string());
  }
  directories.emplace_back(".");
  throw error("{}: no such config{}; looked for{}", path, nearest_config(path, directories),
              looked);
}

}  // namespace mpt
