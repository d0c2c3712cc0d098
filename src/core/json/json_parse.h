// JSON text with // and /* */ comments → a value, and the line on which every key stands.
//
// Guarantees: refuses, with file, line and column, what is not JSON, numbers beyond double, keys given twice,
// nesting deeper than kMaxJsonDepth, more than kMaxJsonKeys keys and texts of more than kMaxJsonBytes.
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

// `name` is what messages call the text: a path.
ParsedJson parse_json(std::string_view text, const std::string& name);

// JSON of a file that the program wrote: no comments, no lines, nested no deeper than kMaxJsonDepth. Throws
// Error that names the file for everything else.
nlohmann::json parse_written_json(std::string_view text, const std::string& name);

// "model" + "hidden_size" → "model.hidden_size"; "" + "model" → "model"
std::string join_key_path(std::string_view parent, std::string_view key);

// The value in a message: its type and, shortened, its text: `the string "abc"`, `the number 1.5`, `null`.
std::string describe(const Json& value);

}  // namespace mpt
