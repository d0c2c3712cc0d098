#include "train/reports/metrics_log.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "core/io/lines.h"
#include "core/json/json_parse.h"
#include "core/text/library_message.h"

namespace mpt {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::string_view kNonFiniteSuffix = "_nonfinite";

bool non_finite(const ordered_json& value) {
  return value.is_number_float() && !std::isfinite(value.get<double>());
}

// Returns the value of "<key>_nonfinite"; null if the key is not needed.
ordered_json non_finite_names(const ordered_json& value) {
  if (non_finite(value)) {
    const auto number = value.get<double>();
    return std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
  }
  if (!value.is_array()) return nullptr;
  ordered_json names = ordered_json::array();
  for (const ordered_json& item : value) names.push_back(non_finite_names(item));
  const bool all_null =
      std::all_of(names.begin(), names.end(), [](const auto& name) { return name.is_null(); });
  return all_null ? ordered_json(nullptr) : names;
}

ordered_json readable(const ordered_json& value) {
  if (non_finite(value)) return nullptr;
  if (value.is_array()) {
    ordered_json copy = ordered_json::array();
    for (const ordered_json& item : value) copy.push_back(readable(item));
    return copy;
  }
  if (!value.is_object()) return value;
  ordered_json copy = ordered_json::object();
  for (const auto& [key, item] : value.items()) {
    copy[key] = readable(item);
    if (ordered_json names = non_finite_names(item); !names.is_null()) {
      copy[key + std::string(kNonFiniteSuffix)] = std::move(names);
    }
  }
  return copy;
}

// Bytes up to and including the last newline. Searches from the end, so that long logs open as fast
// as short ones.
int64_t size_of_whole_lines(const ReadableFile& file) {
  constexpr int64_t kPiece = 65536;
  for (int64_t end = file.size(); end > 0; end -= std::min(end, kPiece)) {
    std::string piece(static_cast<size_t>(std::min(end, kPiece)), '\0');
    const int64_t begin = end - static_cast<int64_t>(piece.size());
    file.read(begin, std::as_writable_bytes(std::span(piece)));
    const size_t newline = piece.rfind('\n');
    if (newline != std::string::npos) return begin + static_cast<int64_t>(newline) + 1;
  }
  return 0;
}

int64_t cut_torn_line(FileSystem& fs, const std::string& path) {
  if (!fs.exists(path)) return 0;
  const auto file = fs.open_read(path);
  const int64_t whole = size_of_whole_lines(*file);
  if (whole < file->size()) fs.truncate(path, whole);
  return whole;
}

class MetricsReader {
 public:
  explicit MetricsReader(const std::string& path) : path_(path) {}

  void take_line(std::string_view line) {
    ++number_;
    json record;
    try {
      record = json::parse(line);
    } catch (const json::exception& bad) {
      throw error("{}: line {}: not valid JSON: {}", path_, number_, library_message(bad.what()));
    }
    if (!record.is_object()) throw error("{}: line {}: not a JSON object", path_, number_);
    take(std::move(record));
  }
  std::map<int64_t, json> result() { return std::move(records_); }

 private:
  void take(json record) {
    const auto event = record.find("event");
    const bool resumes = event != record.end() && *event == "resume";
    if (event != record.end() && !resumes) return;
    const int64_t step = step_of(record);
    if (resumes)
      records_.erase(records_.upper_bound(step), records_.end());
    else
      records_[step] = std::move(record);
  }
  int64_t step_of(const json& record) const {
    const auto step = record.find("step");
    if (step == record.end() || !step->is_number_integer() || step->get<int64_t>() < 0) {
      throw error("{}: line {}: \"step\" is missing or not a whole number of at least 0", path_,
                  number_);
    }
    return step->get<int64_t>();
  }

  const std::string& path_;
  int64_t number_ = 0;
  std::map<int64_t, json> records_;
};

}  // namespace

MetricsLog::MetricsLog(FileSystem& fs, std::string path) : fs_(fs), path_(std::move(path)) {
  const bool created = !fs_.exists(path_);
  size_ = cut_torn_line(fs_, path_);
  file_ = fs_.open_append(path_);
  if (created) fs_.sync_directory(parent_directory(path_));
}

void MetricsLog::append(const nlohmann::ordered_json& record) {
  check(record.is_object(), "{}: a record is a JSON object, not a {}", path_, record.type_name());
  const std::string line = json_text(readable(record)) + "\n";
  if (torn_) cut_torn();
  try {
    file_->append(bytes_of(line));
  } catch (const Error&) {
    torn_ = true;
    try {
      cut_torn();
    } catch (const Error&) {
      // Retried before the next line; the first failure is reported.
    }
    throw;
  }
  size_ += static_cast<int64_t>(line.size());
}

void MetricsLog::cut_torn() {
  fs_.truncate(path_, size_);
  torn_ = false;
}

void MetricsLog::mark_resume(int64_t step, const std::string& reason) {
  ordered_json record{{"event", "resume"}, {"step", step}};
  if (!reason.empty()) record["reason"] = reason;
  append(record);
}

void MetricsLog::sync() { file_->sync(); }

std::map<int64_t, json> read_metrics(FileSystem& fs, const std::string& path) {
  MetricsReader reader(path);
  each_line(*fs.open_read(path), path, [&](std::string_view line, LineEnd end) {
    if (end == LineEnd::kNewline) reader.take_line(line);
  });
  return reader.result();
}

}  // namespace mpt
