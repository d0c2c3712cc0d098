#include "train/watch/run_records.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>

#include "core/check.h"
#include "core/io/lines.h"
#include "core/json/json_parse.h"
#include "train/watch/event_file.h"

namespace mpt {
namespace {

using nlohmann::json;

bool before(const RecordedPoint& point, int64_t step) { return point.step < step; }
bool after(int64_t step, const RecordedPoint& point) { return step < point.step; }

// Null if the line is no JSON that a run could have written.
std::optional<json> record_of(std::string_view line) {
  try {
    return parse_plain_json(line);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Of a record of any shape.
std::optional<int64_t> step_of(const json& record) {
  if (!record.is_object() || !record.contains("step") || !record["step"].is_number_integer())
    return std::nullopt;
  return record["step"].get<int64_t>();
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
    run_.steps = int64_t(steps_.size());
    run_.last_step = steps_.empty() ? 0 : steps_.back();
  }

 private:
  void take(const json& record, int64_t step) {
    const auto event = record.find("event");
    if (event != record.end()) {
      if (*event == "resume") go_back(step, record.value("reason", json()));
      return;
    }
    const auto at = std::lower_bound(steps_.begin(), steps_.end(), step);
    if (at == steps_.end() || *at != step) steps_.insert(at, step);
    for (const auto& [tag, value] : scalars(record)) add(run_.curves[tag], {step, value});
  }
  // A record of another shape than this program's has no curves.
  static Scalars scalars(const json& record) {
    try {
      return scalars_of(record);
    } catch (const nlohmann::json::exception&) {
      return {};
    }
  }
  // A phase that begins is neither.
  void go_back(int64_t step, const json& reason) {
    if (reason.is_null()) ++run_.resumed;
    if (reason.is_string() && reason.get_ref<const std::string&>().starts_with("rollback"))
      ++run_.rolled_back;
    steps_.erase(std::upper_bound(steps_.begin(), steps_.end(), step), steps_.end());
    for (auto& [tag, curve] : run_.curves)
      curve.erase(std::upper_bound(curve.begin(), curve.end(), step, after), curve.end());
  }
  static void add(RecordedCurve& curve, RecordedPoint point) {
    const auto at = std::lower_bound(curve.begin(), curve.end(), point.step, before);
    if (at != curve.end() && at->step == point.step)
      *at = point;
    else
      curve.insert(at, point);
  }

  RunRecords& run_;
  std::vector<int64_t> steps_;
};

// A line of samples.jsonl; what has another shape is passed over.
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

json json_beside(FileSystem& fs, const std::string& path) {
  if (!fs.exists(path)) return nullptr;
  constexpr int64_t kMost = int64_t{16} << 20;
  json content = parse_plain_json(fs.read_file(path, kMost), path);
  if (!content.is_object()) throw error("{}: not a JSON object", path);
  return content;
}

}  // namespace

RunRecords read_run(FileSystem& fs, const std::string& path) {
  const std::string metrics = fs.is_directory(path) ? in_directory(path, "metrics.jsonl") : path;
  if (!fs.exists(metrics))
    throw error(
        "{}: {}; expected the directory of a run or its metrics.jsonl", path,
        metrics == path ? "does not exist" : "no metrics.jsonl in it, so no step is recorded");
  const std::string directory = parent_directory(metrics);
  RunRecords run;
  run.name = std::filesystem::absolute(directory).lexically_normal().filename().string();
  if (run.name.empty())
    run.name = std::filesystem::absolute(directory).lexically_normal().parent_path().filename();
  run.config = json_beside(fs, in_directory(directory, "config.json"));
  run.report = json_beside(fs, in_directory(directory, "report.json"));
  Collector collector(run);
  each_line(*fs.open_read(metrics), metrics,
            [&](std::string_view line, LineEnd) { collector.take_line(line); });
  collector.finish();
  if (run.steps == 0) throw error("{}: no step is recorded in it", metrics);
  const std::string samples = in_directory(directory, "samples.jsonl");
  if (fs.exists(samples))
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
