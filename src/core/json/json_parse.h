// JSON text with // and /* */ comments → a value, and the line of every key.
//
// Rejects, naming file, line and column: invalid JSON, numbers beyond double, duplicate keys,
// nesting deeper than kMaxJsonDepth, more than kMaxJsonKeys keys and texts of more than
// kMaxJsonBytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace mpt {

using Json = nlohmann::ordered_json;

inline constexpr int64_t kMaxJsonDepth = 64;
inline constexpr int64_t kMaxJsonKeys = 10'000;
inline constexpr int64_t kMaxJsonBytes = 1 << 20;

struct ParsedJson {
  Json value;
  std::map<std::string, int64_t, std::less<>>
      lines;  // "model.hidden_size" → 12; an array's elements share its entry
};

// `name` identifies the text in messages: a path.
ParsedJson parse_json(std::string_view text, const std::string& name);

// Parses JSON that the program itself wrote: no comments, no line numbers, nesting up to
// kMaxJsonDepth. Throws Error naming the file otherwise.
nlohmann::json parse_written_json(std::string_view text, const std::string& name);

// "model" + "hidden_size" → "model.hidden_size"; "" + "model" → "model"
std::string join_key_path(std::string_view parent, std::string_view key);

// A value for messages, its type and its shortened text: `the string "abc"`, `the number 1.5`,
// `null`.
std::string describe(const Json& value);

}  // namespace mpt
