#include "watch/run_records.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <string_view>

#include "core/check.h"
#include "core/io/lines.h"
#include "core/json/json_parse.h"
#include "watch/event_file.h"

namespace mpt {
namespace {

using nlohmann::json;

// Returns nullopt if the line is no JSON that a run could have written.
std::optional<json> record_of(std::string_view line) {
  try {
    return parse_plain_json(line);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// `record` may have any shape.
std::optional<int64_t> step_of(const json& record) {
  if (!record.is_object() || !record.contains("step") || !record["step"].is_number_integer())
    return std::nullopt;
  return record["step"].get<int64_t>();
}

// A number as written, and the number of its record.
struct Written {
  RecordedPoint point;
  int64_t record;
};

// Invalidates earlier records beyond a step.
struct Return {
  int64_t record, step;
};

bool by_step(const RecordedPoint& a, const RecordedPoint& b) { return a.step < b.step; }
bool same_step(const RecordedPoint& a, const RecordedPoint& b) { return a.step == b.step; }

// Lowers each step to the lowest of its own and those of later returns.
void gather(std::vector<Return>& returns) {
  int64_t lowest = std::numeric_limits<int64_t>::max();
  for (auto one = returns.rbegin(); one != returns.rend(); ++one)
    one->step = lowest = std::min(lowest, one->step);
}

// Returns the valid part of a curve: no points that a later return invalidated, and the last one
// for each step.
RecordedCurve curve_of(const std::vector<Written>& written, const std::vector<Return>& gathered) {
  RecordedCurve curve;
  for (auto one = written.rbegin(); one != written.rend(); ++one) {
    const auto later = std::ranges::upper_bound(gathered, one->record, {}, &Return::record);
    if (later == gathered.end() || one->point.step <= later->step) curve.push_back(one->point);
  }
  std::ranges::stable_sort(curve, by_step);  // the last point written for a step comes first
  curve.erase(std::unique(curve.begin(), curve.end(), same_step), curve.end());
  return curve;
}

class Collector {
 public:
  explicit Collector(RunRecords& run) : run_(run) {}

  void take_line(std::string_view line) {
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;
    const std::optional<json> record = record_of(line);
    if (!record) {
      ++run_.torn_lines;
      return;
    }
    if (const std::optional<int64_t> step = step_of(*record)) take(*record, *step);
  }
  void finish() {
    gather(returns_);
    const RecordedCurve steps = curve_of(steps_, returns_);
    run_.steps = std::ssize(steps);
    run_.last_step = steps.empty() ? 0 : steps.back().step;
    for (const auto& [tag, written] : written_) run_.curves[tag] = curve_of(written, returns_);
  }

 private:
  void take(const json& record, int64_t step) {
    ++records_;
    const auto event = record.find("event");
    if (event != record.end()) {
      if (*event == "resume") go_back(step, record.value("reason", json()));
      return;
    }
    steps_.push_back({{step, 0}, records_});
    for (const auto& [tag, value] : scalars(record))
      written_[tag].push_back({{step, value}, records_});
  }
  // A record of an unknown shape has no curves.
  static Scalars scalars(const json& record) {
    try {
      return scalars_of(record);
    } catch (const nlohmann::json::exception&) {
      return {};
    }
  }
  // The start of a phase is neither.
  void go_back(int64_t step, const json& reason) {
    if (reason.is_null()) ++run_.resumed;
    if (reason.is_string() && reason.get_ref<const std::string&>().starts_with("rollback"))
      ++run_.rolled_back;
    returns_.push_back({records_, step});
  }

  RunRecords& run_;
  int64_t records_ = 0;
  std::vector<Written> steps_;
  std::map<std::string, std::vector<Written>> written_;  // by tag
  std::vector<Return> returns_;
};

// Reads a line of samples.jsonl; skips one of an unknown shape.
void take_samples(std::string_view line, RunRecords& run) {
  const json record = record_of(line).value_or(json());
  const std::optional<int64_t> step = step_of(record);
  if (step && record.value("event", json()) == "resume")
    run.samples.erase(run.samples.upper_bound(*step), run.samples.end());
  if (!step || !record.contains("samples") || !record["samples"].is_array()) return;
  std::vector<RecordedSample> samples;
  for (const json& sample : record["samples"]) {
    if (!sample.is_object()) return;
    const auto text = [&](const char* key) {
      const auto found = sample.find(key);
      return found != sample.end() && found->is_string() ? found->get<std::string>() : "";
    };
    samples.push_back({text("prompt"), text("text")});
  }
  run.samples[*step] = std::move(samples);
}

json object_of(json content, const std::string& path) {
  if (!content.is_object()) throw error("{}: not a JSON object", path);
  return content;
}

int64_t values_in(const json& value) {
  if (!value.is_structured()) return 1;
  int64_t values = 0;
  for (const json& part : value) values += values_in(part);
  return values;
}

// A page spells out the path of every value.
json config_beside(FileSystem& fs, const std::string& path) {
  if (!has_optional_file(fs, path)) return nullptr;
  json config = object_of(parse_json(fs.read_file(path, kMaxJsonBytes), path).value, path);
  if (const int64_t values = values_in(config); values > kMaxJsonKeys)
    throw error("{}: {} values; at most {} are read of a config", path, values, kMaxJsonKeys);
  return config;
}

json report_beside(FileSystem& fs, const std::string& path) {
  constexpr int64_t kMost = int64_t{16} << 20;
  if (!has_optional_file(fs, path)) return nullptr;
  return object_of(parse_plain_json(fs.read_file(path, kMost), path), path);
}

}  // namespace

RunRecords read_run(FileSystem& fs, const std::string& path) {
  const std::string metrics = fs.is_directory(path) ? in_directory(path, "metrics.jsonl") : path;
  if (!has_optional_file(fs, metrics))
    throw error(
        "{}: {}; expected the directory of a run or its metrics.jsonl", path,
        metrics == path ? "does not exist" : "no metrics.jsonl in it, so no step is recorded");
  const std::string directory = parent_directory(metrics);
  RunRecords run;
  run.name = std::filesystem::absolute(directory).lexically_normal().filename().string();
  if (run.name.empty())
    run.name = std::filesystem::absolute(directory).lexically_normal().parent_path().filename();
  run.config = config_beside(fs, in_directory(directory, "config.json"));
  run.report = report_beside(fs, in_directory(directory, "report.json"));
  Collector collector(run);
  each_line(*fs.open_read(metrics), metrics,
            [&](std::string_view line, LineEnd) { collector.take_line(line); });
  collector.finish();
  if (run.steps == 0) throw error("{}: no step is recorded in it", metrics);
  const std::string samples = in_directory(directory, "samples.jsonl");
  if (has_optional_file(fs, samples))
    each_line(*fs.open_read(samples), samples,
              [&](std::string_view line, LineEnd) { take_samples(line, run); });
  run.samples.erase(run.samples.upper_bound(run.last_step), run.samples.end());
  return run;
}

void name_apart(std::vector<RunRecords>& runs, const std::vector<std::string>& paths) {
  std::map<std::string, int64_t> count;
  for (const RunRecords& run : runs) ++count[run.name];
  for (size_t i = 0; i < runs.size(); ++i)
    if (count[runs[i].name] > 1) runs[i].name = paths[i];
}

}  // namespace mpt
