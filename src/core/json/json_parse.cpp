#include "core/json/json_parse.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "core/check.h"
#include "core/json/json_events.h"
#include "core/json/json_scan.h"
#include "core/text/library_message.h"

namespace mpt {
namespace {

// Iterates over the characters of a text and counts lines. Copies share the count.
struct LineCounting {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at;
  int64_t* line;

  reference operator*() const { return *at; }
  LineCounting& operator++() {
    *line += *at++ == '\n';
    return *this;
  }
  bool operator==(const LineCounting& other) const { return at == other.at; }
  bool operator!=(const LineCounting& other) const { return at != other.at; }
};

// "[json.exception.parse_error.101] parse error at line 3, column 5: unexpected '}'" → "unexpected
// '}'"
std::string reason_of(const std::string& what) {
  std::string reason = what.substr(what.find("] ") == std::string::npos ? 0 : what.find("] ") + 2);
  if (reason.starts_with("parse error"))
    reason.erase(0, std::min(reason.size(), reason.find(": ") + 2));
  return reason;
}

// Receives the parser's events and builds the tree. Records keys as they are announced, while
// `line` is still correct.
class TreeBuilder : public JsonEvents<Json> {
 public:
  TreeBuilder(std::string_view text, const std::string& name, const int64_t& line)
      : text_(text), name_(name), line_(line) {}

  ParsedJson take() { return std::move(result_); }

  bool value(Json value) override {
    place(std::move(value));
    return true;
  }
  bool open(Json empty) override {
    if (std::ssize(open_) >= kMaxJsonDepth)
      throw error("{}:{}: nested deeper than {} levels", name_, line_, kMaxJsonDepth);
    Json* value = place(std::move(empty));
    open_.push_back({value, slot_path_});
    return true;
  }
  bool close() override {
    open_.pop_back();
    return true;
  }

  bool key(string_t& key) override {
    const std::string path = join_key_path(open_.back().path, key);
    if (std::ssize(path) > kMaxJsonPathBytes)  // each key keeps its path in memory
      throw error("{}:{}: a key and those around it have {} bytes; at most {} are accepted", name_,
                  line_, path.size(), kMaxJsonPathBytes);
    auto [entry, is_new] = result_.lines.emplace(path, line_);
    if (!is_new)
      throw error("{}:{}: {} is set twice; first on line {}", name_, line_, path, entry->second);
    if (std::ssize(result_.lines) > kMaxJsonKeys)
      throw error("{}:{}: more than {} keys", name_, line_, kMaxJsonKeys);
    slot_ = &(*open_.back().value)[key];
    slot_path_ = path;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& reason) override {
    const std::string_view read =
        text_.substr(0, std::min(position == 0 ? 0 : position - 1, text_.size()));
    const auto last_newline = read.rfind('\n');
    const size_t column =
        read.size() - (last_newline == std::string_view::npos ? 0 : last_newline + 1) + 1;
    throw error("{}:{}:{}: {}", name_, 1 + std::ranges::count(read, '\n'), column,
                reason_of(reason.what()));
  }

 private:
  struct Container {
    Json* value;
    std::string path;
  };

  // Puts a value at its position: the root, the slot of the last key, or the end of the array.
  Json* place(Json value) {
    if (open_.empty()) return &(result_.value = std::move(value));
    Container& container = open_.back();
    if (container.value->is_object()) return &(*slot_ = std::move(value));
    container.value->push_back(std::move(value));
    slot_path_ = container.path + "[" + std::to_string(container.value->size() - 1) + "]";
    return &container.value->back();
  }

  std::string_view text_;
  const std::string& name_;
  const int64_t& line_;
  ParsedJson result_;
  std::vector<Container> open_;
  Json* slot_ = nullptr;   // for the last key announced
  std::string slot_path_;  // path of the value placed last, or about to be
};

// nlohmann::json::parse() takes quadratic time in a container's elements with a callback; without
// one it accepts duplicate keys and any nesting.
class PlainBuilder : public JsonEvents<nlohmann::json> {
 public:
  nlohmann::json take() { return std::move(root_); }

  bool value(nlohmann::json value) override {
    place(std::move(value));
    return true;
  }
  bool open(nlohmann::json empty) override {
    if (std::ssize(open_) >= kMaxJsonDepth)
      throw error("nested deeper than {} levels", kMaxJsonDepth);
    begin(std::move(empty));
    return true;
  }
  bool key(std::string& key) override {
    if (!begin_value_of(key)) throw error("{}: the key is there twice", key);
    return true;
  }
  bool close() override {
    open_.pop_back();
    return true;
  }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& reason) override {
    throw error("not valid JSON: {}", library_message(reason.what()));
  }

 protected:
  void begin(nlohmann::json empty) { open_.push_back(place(std::move(empty))); }
  // Returns whether the key is new.
  bool begin_value_of(const std::string& key) {
    const auto [at, is_new] =
        open_.back()->get_ref<nlohmann::json::object_t&>().emplace(key, nullptr);
    slot_ = &at->second;
    return is_new;
  }

 private:
  // Open containers do not move: only the last element of a list is open.
  nlohmann::json* place(nlohmann::json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    if (open_.back()->is_object()) return &(*slot_ = std::move(value));
    return &open_.back()->get_ref<nlohmann::json::array_t&>().emplace_back(std::move(value));
  }

  nlohmann::json root_;
  std::vector<nlohmann::json*> open_;
  nlohmann::json* slot_ = nullptr;  // for the last key announced
};

// Also accepts whatever else an untrusted line may contain.
class LineBuilder final : public PlainBuilder {
 public:
  bool open(nlohmann::json empty) override {
    begin(std::move(empty));
    return true;
  }
  bool key(std::string& key) override {
    begin_value_of(key);
    return true;
  }
};

}  // namespace

ParsedJson parse_json(std::string_view text, const std::string& name) {
  if (std::ssize(text) > kMaxJsonBytes)
    throw error("{}: {} bytes is too long for a JSON document; at most {} are read", name,
                text.size(), kMaxJsonBytes);
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    throw error("{}: the file is empty", name);
  int64_t line = 1;
  TreeBuilder builder(text, name, line);
  const char* begin = text.data();
  const char* end = begin + text.size();
  const bool strict = true, ignore_comments = true;
  Json::sax_parse(LineCounting{begin, &line}, LineCounting{end, &line}, &builder,
                  Json::input_format_t::json, strict, ignore_comments);
  return builder.take();
}

nlohmann::json parse_plain_json(std::string_view text) {
  if (std::ssize(text) > kMaxPlainJsonBytes)
    throw error("{} bytes are too long for JSON; at most {} are read", text.size(),
                kMaxPlainJsonBytes);
  PlainBuilder builder;
  nlohmann::json::sax_parse(text, &builder);
  return builder.take();
}

nlohmann::json parse_plain_json(std::string_view text, const std::string& name) {
  try {
    return parse_plain_json(text);
  } catch (const Error& defect) {
    throw error("{}: {}", name, defect.what());
  }
}

nlohmann::json parse_json_line(std::string_view text) {
  LineBuilder builder;
  scan_json(text, builder);
  return builder.take();
}

std::string join_key_path(std::string_view parent, std::string_view key) {
  return parent.empty() ? std::string(key) : fmt::format("{}.{}", parent, key);
}

std::string describe(const Json& value) {
  if (value.is_null()) return "null";
  const std::string text = short_json_text(value);
  if (value.is_object()) return "the object " + text;
  if (value.is_array()) return "the list " + text;
  return fmt::format("the {} {}", value.type_name(), text);
}

}  // namespace mpt
