#include "core/json/json_document.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "core/check.h"
#include "core/io/file_system.h"
#include "core/json/json_parse.h"
#include "core/text/shown_text.h"
#include "core/text/utf8.h"

namespace mpt {
namespace fs = std::filesystem;
namespace {

void merge_values(Json& target, const Json& value) {
  if (!target.is_object() || !value.is_object()) {
    target = value;
    return;
  }
  for (const auto& [key, child] : value.items()) merge_values(target[key], child);
}

std::string read_text(const fs::path& file) {
  std::error_code failure;
  const fs::file_status status = fs::status(file, failure);
  if (!fs::exists(status)) throw error("{}: no such file", file.string());
  if (fs::is_directory(status))
    throw error("{}: is a directory; expected a JSON file", file.string());
  if (!fs::is_regular_file(status)) throw error("{}: is not a regular file", file.string());
  std::ifstream stream(file, std::ios::binary);
  std::string text(kMaxJsonBytes + 1, '\0');  // one byte more than parse_json accepts
  stream.read(text.data(), std::ssize(text));
  text.resize(static_cast<size_t>(stream.gcount()));
  if (stream.bad() || (!stream.is_open())) throw error("{}: cannot be read", file.string());
  return text;
}

ParsedJson parse_setting(std::string_view text) {
  if (!Json::accept(text)) return {.value = std::string(text), .lines = {}};
  return parse_json(text, fmt::format("--set value {}", text));
}

std::vector<std::string> split_key_path(std::string_view path, std::string_view assignment) {
  std::vector<std::string> keys;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    if (end == begin)
      throw error("--set {}: a key is empty; write --set section.key=value", assignment);
    keys.emplace_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  if (std::ssize(keys) > kMaxJsonDepth)
    throw error("--set {}: deeper than {} levels", assignment, kMaxJsonDepth);
  return keys;
}

// Value of a key of an object, or of an index of a list; null if absent.
Json* child_of(Json& value, std::string_view key) {
  if (value.is_object()) {
    const auto found = value.find(std::string(key));
    return found == value.end() ? nullptr : &*found;
  }
  size_t place = 0;
  const auto [end, failure] = std::from_chars(key.data(), key.data() + key.size(), place);
  const bool is_place = value.is_array() && failure == std::errc() && end == key.end();
  return is_place && place < value.size() ? &value[place] : nullptr;
}

}  // namespace

// Reads a file and everything it includes.
class DocumentLoader {
 public:
  explicit DocumentLoader(const std::vector<std::string>& directories)
      : directories_(directories) {}

  JsonDocument load(const fs::path& file) {
    enter(file);
    const std::string name = file.string();
    ParsedJson parsed = parse_json(read_text(file), name);
    if ((keys_ += std::ssize(parsed.lines)) > kMaxJsonKeys)
      throw error("{}: more than {} keys, with those of other files that are included", name,
                  kMaxJsonKeys);
    if (!parsed.value.is_object())
      throw error("{}: expected an object {{...}}, found {}", name, describe(parsed.value));

    JsonDocument::Sources sources;
    for (const auto& [path, line] : parsed.lines)
      sources[path].text = fmt::format("{}:{}", name, line);
    JsonDocument document;
    document.name_ = name;
    for (const std::string& piece : includes(parsed, name)) {
      JsonDocument included = load_piece(piece, file, sources.at("include").text);
      document.merge(included.root_, std::move(included.sources_));
    }
    check_schema_key(parsed, name);
    parsed.value.erase("include");
    parsed.value.erase("$schema");
    for (auto& [path, source] : sources) source.order = merged_;
    document.merge(parsed.value, std::move(sources));
    document.merged_ = ++merged_;
    open_.pop_back();
    return document;
  }

 private:
  static constexpr int64_t kMaxFiles = 256;

  // Marks `file` as being read. Throws if it already is.
  void enter(const fs::path& file) {
    std::error_code failure;
    fs::path identity = fs::weakly_canonical(file, failure);
    if (failure) identity = file;
    if (std::ranges::find(open_, identity) != open_.end())
      throw error("{} includes itself: {}", file.string(), chain(identity));
    if (++files_ > kMaxFiles)
      throw error("{}: more than {} files are included", file.string(), kMaxFiles);
    open_.push_back(identity);
  }

  [[nodiscard]] std::string chain(const fs::path& last) const {
    std::string names;
    for (const fs::path& file : open_) names += file.string() + " -> ";
    return names + last.string();
  }

  // Candidate paths of an included file, in search order.
  [[nodiscard]] std::vector<fs::path> places(const std::string& piece,
                                             const fs::path& included_by) const {
    std::vector<fs::path> all{(included_by.parent_path() / piece).lexically_normal()};
    if (fs::path(piece).is_absolute()) return all;
    for (const std::string& directory : directories_) {
      const fs::path place = (fs::path(directory) / piece).lexically_normal();
      if (std::ranges::find(all, place) == all.end()) all.push_back(place);
    }
    return all;
  }

  JsonDocument load_piece(const std::string& piece, const fs::path& included_by,
                          const std::string& wanted_by) {
    std::string looked;
    for (const fs::path& file : places(piece, included_by)) {
      std::error_code failure;
      if (fs::is_directory(file, failure))
        throw error("{}: include: {} is a directory; expected a JSON file", wanted_by,
                    file.string());
      if (has_reachable_file(file.string())) return load(file);
      looked += fmt::format("\n  {}", file.string());
    }
    throw error("{}: include: {}: no such file; looked for{}", wanted_by, piece, looked);
  }

  static std::vector<std::string> includes(const ParsedJson& parsed, const std::string& name) {
    if (!parsed.value.contains("include")) return {};
    const Json& list = parsed.value["include"];
    const auto is_string = [](const Json& item) { return item.is_string(); };
    if (!list.is_array() || !std::ranges::all_of(list, is_string))
      throw error("{}:{}: include: expected a list of file names, found {}", name,
                  parsed.lines.at("include"), describe(list));
    return list.get<std::vector<std::string>>();
  }

  static void check_schema_key(const ParsedJson& parsed, const std::string& name) {
    if (parsed.value.contains("$schema") && !parsed.value["$schema"].is_string())
      throw error("{}:{}: $schema: expected a string, found {}", name, parsed.lines.at("$schema"),
                  describe(parsed.value["$schema"]));
  }

  const std::vector<std::string>&
      directories_;             // searched after the including file's own directory
  std::vector<fs::path> open_;  // the file being read and its chain of includers, outermost first
  int64_t files_ = 0;
  int64_t keys_ = 0;
  int64_t merged_ = 0;
};

JsonDocument JsonDocument::load(const std::string& path,
                                const std::vector<std::string>& directories) {
  return DocumentLoader(directories).load(path);
}

JsonDocument JsonDocument::of_value(Json value, std::string name) {
  if (!value.is_object())
    throw error("{}: expected an object {{...}}, found {}", name, describe(value));
  // A checkpoint's config may have been written by others: the limits for files apply.
  (void)parse_json(json_text(value), name);
  JsonDocument document;
  document.name_ = std::move(name);
  document.root_ = std::move(value);
  return document;
}

void JsonDocument::merge(const Json& value, Sources sources) {
  merge_values(root_, value);
  for (auto& [path, source] : sources) sources_[path] = std::move(source);
}

void JsonDocument::set(std::string_view assignment) {
  if (valid_utf8_prefix(assignment) != assignment.size())
    throw error("--set {}: the text is not UTF-8, which all texts of a configuration have to be",
                without_controls(assignment));
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0)
    throw error("--set {}: expected key=value, as in --set optimizer.eps=1e-10", assignment);
  const std::vector<std::string> keys = split_key_path(assignment.substr(0, equals), assignment);
  if (keys.front() == "include" || keys.front() == "$schema")
    throw error("--set {}: {} can be set only in a file", assignment, keys.front());

  const Source source{fmt::format("--set {}", assignment), merged_++};
  Json* node = &root_;
  std::string path;
  for (const std::string& key : keys) {
    if (node->is_null()) *node = Json::object();
    if (!node->is_object())
      throw error("{}: {} is {} ({}), not a section", source.text, path, describe(*node),
                  source_of(path));
    node = &(*node)[key];
    path = join_key_path(path, key);
    sources_.try_emplace(path, source);
  }
  const ParsedJson parsed = parse_setting(assignment.substr(equals + 1));
  sources_[path] = source;
  for (const auto& [inner, line] : parsed.lines) sources_[join_key_path(path, inner)] = source;
  merge_values(*node, parsed.value);
}

void JsonDocument::inherit(std::string_view list, std::string_view key) {
  const auto items = root_.find(std::string(list));
  const auto own = root_.find(std::string(key));
  if (items == root_.end() || !items->is_array() || own == root_.end()) return;
  size_t bytes = own->dump(-1, ' ', true, Json::error_handler_t::replace).size();
  Sources below;  // keyed by the rest of the path after `key`
  for (const auto& [path, source] : sources_)
    if (path == key || path.starts_with(std::string(key) + ".")) {
      below[path.substr(key.size())] = source;
      bytes += path.size() + source.text.size();
    }
  constexpr size_t kMostBytes = size_t{4} << 20;  // otherwise, small files could fill the memory
  if (items->size() * bytes > kMostBytes)
    throw error("{}: {} has {} elements that inherit {} bytes of {}; at most {} bytes are accepted",
                source_of(list), list, items->size(), bytes, key, kMostBytes / items->size());
  for (size_t i = 0; i < items->size(); ++i) {
    Json& item = (*items)[i];
    if (!item.is_object() || !item.value(std::string(key), Json()).is_null()) continue;
    item[std::string(key)] = *own;
    const std::string place = join_key_path(join_key_path(list, std::to_string(i)), key);
    for (const auto& [path, source] : below) sources_.try_emplace(place + path, source);
  }
}

Json* JsonDocument::find(std::string_view key_path) {
  Json* value = &root_;
  for (size_t begin = 0, dot = 0; dot != std::string_view::npos; begin = dot + 1) {
    dot = key_path.find('.', begin);
    value = child_of(*value, key_path.substr(begin, dot - begin));
    if (value == nullptr) return nullptr;
  }
  return value;
}

size_t JsonDocument::length_of(std::string_view list) {
  const Json* const found = find(list);
  return found != nullptr && found->is_array() ? found->size() : 0;
}

Json* JsonDocument::section_of(std::string_view key_path) {
  const size_t dot = key_path.rfind('.');
  Json* const section = dot == std::string_view::npos ? &root_ : find(key_path.substr(0, dot));
  return section != nullptr && section->is_object() ? section : nullptr;
}

void JsonDocument::rename(std::string_view former, std::string_view present) {
  Json* const section = section_of(former);
  const std::string old_key(former.substr(former.rfind('.') + 1)),
      key(present.substr(present.rfind('.') + 1));
  if (section == nullptr || !section->contains(old_key)) return;
  const bool both = section->contains(key), old_counts = !both || is_above(former, present);
  if (both && !old_counts && !is_above(present, former))
    throw error("{}: {} is a former name of {}, which {} also sets; remove one of them",
                source_of(former), former, present, source_of(present));
  if (old_counts) {
    (*section)[key] = std::move((*section)[old_key]);
    if (const auto source = sources_.find(former); source != sources_.end())
      sources_[std::string(present)] = {fmt::format("{} (as {})", source->second.text, old_key),
                                        source->second.order};
  }
  section->erase(old_key);
}

bool JsonDocument::is_above(std::string_view key_path, std::string_view other) const {
  const auto own = sources_.find(key_path), below = sources_.find(other);
  return own != sources_.end() && below != sources_.end() &&
         own->second.order > below->second.order;
}

std::string JsonDocument::source_of(std::string_view key_path) const {
  for (std::string_view path = key_path; !path.empty();) {
    if (const auto found = sources_.find(path); found != sources_.end()) return found->second.text;
    const size_t dot = path.rfind('.');
    path = path.substr(0, dot == std::string_view::npos ? 0 : dot);
  }
  return name_;
}

}  // namespace mpt
