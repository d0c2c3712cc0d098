// Parses JSON text with // and /* */ comments into a value, and records the line of every key.
//
// Rejects, naming file, line and column: invalid JSON, numbers beyond double, duplicate keys,
// nesting deeper than kMaxJsonDepth, more than kMaxJsonKeys keys, paths of more than
// kMaxJsonPathBytes and texts of more than kMaxJsonBytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "core/text/shown_text.h"

namespace mpt {

using Json = nlohmann::ordered_json;

inline constexpr int64_t kMaxJsonDepth = 64;
inline constexpr int64_t kMaxJsonKeys = 10'000;
inline constexpr int64_t kMaxJsonBytes = 1 << 20;
inline constexpr int64_t kMaxJsonPathBytes = 1000;  // a key and its enclosing keys
inline constexpr int64_t kMaxPlainJsonBytes = int64_t{256} << 20;

struct ParsedJson {
  Json value;
  std::map<std::string, int64_t, std::less<>>
      lines;  // "model.hidden_size" → 12; an array's elements share its entry
};

// `name` identifies the text in messages: a path.
ParsedJson parse_json(std::string_view text, const std::string& name);

// Parses machine-written JSON without comments: tokenizers, manifests, states of checkpoints. Takes
// time and memory linear in the text. Throws Error for invalid JSON, duplicate keys in an object,
// nesting deeper than kMaxJsonDepth and texts of more than kMaxPlainJsonBytes; `name`, a path,
// comes first in the message.
nlohmann::json parse_plain_json(std::string_view text);
nlohmann::json parse_plain_json(std::string_view text, const std::string& name);

// Parses an untrusted line of JSON lines (json_scan.h). The last of duplicate keys in an object
// wins. Throws Error with the column.
nlohmann::json parse_json_line(std::string_view text);

// "model" + "hidden_size" → "model.hidden_size"; "" + "model" → "model"
std::string join_key_path(std::string_view parent, std::string_view key);

// Text of a value, on one line or with `indent` spaces. Bytes that are not UTF-8, as in a file
// name, become U+FFFD: output written at the end of work must never fail because of them.
template <class Value>
std::string json_text(const Value& value, int indent = -1) {
  return value.dump(indent, ' ', false, Value::error_handler_t::replace);
}
// The same in ASCII, cut to 60 bytes and "...": for messages.
template <class Value>
std::string short_json_text(const Value& value) {
  return shortened(value.dump(-1, ' ', true, Value::error_handler_t::replace), 60);
}

// Describes a value for messages by its type and shortened text: `the string "abc"`, `the number
// 1.5`, `null`.
std::string describe(const Json& value);

}  // namespace mpt
