#include "checkpoint/checkpoint_state.h"

#include <cmath>
#include <limits>
#include <set>
#include <type_traits>
#include <utility>

#include "checkpoint/checkpoint_parts.h"
#include "core/check.h"
#include "core/io/hash.h"
#include "core/json/json_parse.h"
#include "core/text/library_message.h"

namespace mpt {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "mpretrain checkpoint";
constexpr int64_t kVersion = 2, kOldestVersion = 1;  // 1: one rank, no spans
constexpr const char* kSealKey = "checksum";

// JSON has no NaN or infinity: such a number is stored as an object with this one key.
constexpr const char* kNonFiniteKey = "$nonfinite";

json with_non_finite_encoded(json value) {
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    const auto number = value.get<double>();
    return {{kNonFiniteKey, std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf"}};
  }
  if (value.is_structured())
    for (auto& item : value) item = with_non_finite_encoded(std::move(item));
  return value;
}

json with_non_finite_decoded(json value) {
  if (!value.is_structured()) return value;
  if (value.is_object() && value.size() == 1 && value.contains(kNonFiniteKey)) {
    const auto text = value.at(kNonFiniteKey).get<std::string>();
    constexpr double kInf = std::numeric_limits<double>::infinity();
    return text == "nan" ? std::numeric_limits<double>::quiet_NaN() : text == "inf" ? kInf : -kInf;
  }
  for (auto& item : value) item = with_non_finite_decoded(std::move(item));
  return value;
}

std::string seal_of(const json& content) { return hash_bytes(bytes_of(json_text(content))); }

json to_json(const StoredSpan& span) {
  return {
      {"tensor", span.tensor}, {"shape", span.shape}, {"first", span.first}, {"count", span.count}};
}

// Returns a field that must be an integer of the type: JSON's getter accepts any number, and true
// as 1.
template <class Integer>
Integer integer_of(const std::string& path, const char* key, const json& value) {
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<Integer>::max());
  const bool fits = value.is_number_unsigned()
                        ? value.get<uint64_t>() <= kMost
                        : value.is_number_integer() && std::is_signed_v<Integer>;
  if (!fits)
    throw error("{}: not a checkpoint state: {} is {}; expected an integer of 64 bits{}", path, key,
                short_json_text(value), std::is_signed_v<Integer> ? "" : " that is not negative");
  return value.get<Integer>();
}
int64_t count_at(const std::string& path, const char* key, const json& object) {
  return integer_of<int64_t>(path, key, object.at(key));
}

std::vector<int64_t> shape_from(const std::string& path, const json& value) {
  if (!value.is_array())
    throw error("{}: not a checkpoint state: shape is {}; expected a list", path,
                short_json_text(value));
  std::vector<int64_t> shape;
  for (const json& extent : value) shape.push_back(integer_of<int64_t>(path, "shape", extent));
  return shape;
}

// Whether element indices of the shape fit int64_t and the range is inside the tensor.
bool is_sound(const StoredSpan& span) {
  int64_t elements = 1;
  for (const int64_t extent : span.shape)
    if (extent < 1 || __builtin_mul_overflow(elements, extent, &elements)) return false;
  return span.first >= 0 && span.count > 0 && span.first < elements &&
         span.count <= elements - span.first;
}

StoredSpan span_from(const std::string& path, const json& value) {
  StoredSpan span{value.at("tensor").get<std::string>(), shape_from(path, value.at("shape")),
                  count_at(path, "first", value), count_at(path, "count", value)};
  if (!is_sound(span))
    throw error("{}: {} elements starting at {} are outside tensor '{}' with shape {}", path,
                span.count, span.first, span.tensor, short_json_text(value.at("shape")));
  return span;
}

json to_json(const CheckpointFile& file) {
  json value{
      {"name", file.name}, {"bytes", file.bytes}, {"hash", file.hash}, {"spans", json::array()}};
  for (const StoredSpan& span : file.spans) value["spans"].push_back(to_json(span));
  return value;
}

CheckpointFile file_from(const std::string& path, const json& value) {
  CheckpointFile file{value.at("name").get<std::string>(), count_at(path, "bytes", value),
                      value.at("hash").get<std::string>()};
  if (file.name.empty() || file.name.find('/') != std::string::npos || file.name.starts_with('.')) {
    throw error("{}: '{}' is not a file name within the checkpoint", path, file.name);
  }
  // Version 0.2 names it "stretches".
  const char* key = value.contains("spans") ? "spans" : "stretches";
  for (const json& span : value.value(key, json::array()))
    file.spans.push_back(span_from(path, span));
  return file;
}

void check_names(const std::string& path, const std::vector<CheckpointFile>& files) {
  std::set<std::string_view> names;
  for (const CheckpointFile& file : files)
    if (!names.insert(file.name).second)
      throw error("{}: lists the file '{}' twice", path, file.name);
}

// Bounds the counts so that a run can add to them.
void check_counts(const std::string& path, const TrainState& state) {
  constexpr int64_t kMost = int64_t{1} << 60;
  const auto is_count = [](int64_t value) { return value >= 0 && value <= kMost; };
  if (is_count(state.step) && is_count(state.cursor) && is_count(state.tokens)) return;
  throw error("{}: step {}, cursor {} and tokens {} are counts; expected 0 to {}", path, state.step,
              state.cursor, state.tokens, kMost);
}

json parse_object(const std::string& path, std::string_view text) {
  json content = parse_plain_json(text, path);
  if (content.is_object()) return content;
  throw error("{}: not a JSON object", path);
}

void check_format(const std::string& path, const json& content) {
  if (content.value("format", json()) != kFormat) {
    throw error("{}: not a checkpoint state: expected \"format\": \"{}\", found {}", path, kFormat,
                short_json_text(content.value("format", json())));
  }
  const json version = content.value("version", json());
  if (!version.is_number_integer() || version < kOldestVersion || version > kVersion) {
    throw error("{} has format version {}; this program reads versions {} to {}", path,
                short_json_text(version), kOldestVersion, kVersion);
  }
}

void check_seal(const std::string& path, json content) {
  const json found = content.value(kSealKey, json());
  content.erase(kSealKey);
  const std::string expected = seal_of(content);
  if (found != expected) {
    throw error("{} was altered: its content has checksum {}, but it records {}", path, expected,
                short_json_text(found));
  }
}

}  // namespace

std::string checkpoint_record_text(const CheckpointRecord& record) {
  const TrainState& state = record.state;
  check(state.step >= 0 && state.cursor >= 0 && state.tokens >= 0,
        "checkpoint of step {}, cursor {}, tokens {}", state.step, state.cursor, state.tokens);
  json files = json::array();
  for (const CheckpointFile& file : record.files) files.push_back(to_json(file));
  const json content{{"format", kFormat},
                     {"version", kVersion},
                     {"program", MPT_VERSION},
                     {"saved_at", record.saved_at},
                     {"step", state.step},
                     {"cursor", state.cursor},
                     {"seed", state.seed},
                     {"tokens", state.tokens},
                     {"config", with_non_finite_encoded(state.config)},
                     {"extra", with_non_finite_encoded(state.extra)},
                     {"files", files}};
  // Seals the text that will be read back, after replacing invalid UTF-8.
  json sealed = json::parse(json_text(content));
  sealed[kSealKey] = seal_of(sealed);
  return json_text(sealed, 2) + "\n";
}

CheckpointRecord parse_checkpoint_record(const std::string& path, std::string_view text) {
  const json content = parse_object(path, text);
  check_format(path, content);
  check_seal(path, content);
  try {
    CheckpointRecord record;
    record.state = {.step = count_at(path, "step", content),
                    .cursor = count_at(path, "cursor", content),
                    .seed = integer_of<uint64_t>(path, "seed", content.at("seed")),
                    .config = with_non_finite_decoded(content.at("config")),
                    .extra = with_non_finite_decoded(content.at("extra")),
                    .tokens = count_at(path, "tokens", content)};
    check_counts(path, record.state);
    record.version = content.at("version").get<int64_t>();
    record.saved_at = content.value("saved_at", "");
    for (const json& file : content.at("files")) record.files.push_back(file_from(path, file));
    check_names(path, record.files);
    return record;
  } catch (const json::exception& bad) {
    throw error("{}: not a checkpoint state: {}", path, library_message(bad.what()));
  }
}

CheckpointRecord read_checkpoint_record(FileSystem& fs, const std::string& directory) {
  const std::string path = in_directory(directory, kStateName);
  if (!has_optional_file(fs, path))
    throw error("{}: not a checkpoint: {} is missing", directory, kStateName);
  return parse_checkpoint_record(path, fs.read_file(path, kMaxPlainJsonBytes));
}

std::string checkpoint_file_text(const CheckpointFile& file) { return json_text(to_json(file)); }

CheckpointFile parse_checkpoint_file(const std::string& path, std::string_view text) {
  const json content = parse_object(path, text);
  try {
    return file_from(path, content);
  } catch (const json::exception& bad) {
    throw error("{}: not a file description: {}", path, library_message(bad.what()));
  }
}

}  // namespace mpt
