// Texts for people: UTF-8, the nearest known name, counts in words, messages of libraries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mpt {

// UTF-8: validation, and places where a text can be cut.

// Length of the longest prefix that is valid UTF-8 (no overlong forms, no surrogates, at most U+10FFFF);
// text.size() if all of it is.
size_t valid_utf8_prefix(std::string_view text);

// Only spaces, tabs and line ends (or nothing).
bool is_blank(std::string_view text);

// The text without spaces, tabs and line ends at its end.
std::string_view without_trailing_space(std::string_view text);

// Where to cut a text longer than `limit` bytes: behind the last white space in the second half of the first
// `limit` bytes, else at a character boundary. The result is between 1 and max(limit, 1).
size_t cut_position(std::string_view text, size_t limit);

// "did you mean ...?": the known name that a mistyped one most likely stands for.

// Insertions, deletions, substitutions and swaps of neighbours that turn one text into the other.
int64_t edit_distance(std::string_view a, std::string_view b);

// The closest of `known`, the first of equals; nothing if all differ in more than a third of the letters.
std::optional<std::string> nearest_name(std::string_view name, const std::vector<std::string>& known);

// At most `count` of `known`, the most alike first: those that `name` is part of, then by distance.
std::vector<std::string> nearest_names(std::string_view name, std::vector<std::string> known, int64_t count);

// In lower case, with '_' for '-': "BF16" -> "bf16".
std::string plain_spelling(std::string_view name);

// "1 token", "2 tokens"; "2 batches" with the ending "es".

inline std::string counted(int64_t n, std::string_view noun, std::string_view ending = "s") {
  return std::to_string(n) + " " + std::string(noun) + std::string(n == 1 ? "" : ending);
}

// What a library says went wrong, without its own names and source files, which tell a user nothing.

//   "[json.exception.parse_error.101] parse error at line 1, column 2: ..." -> "line 1, column 2: ..."
//   "Internal: ./src/a.cc(232) [x == y] Too many."                          -> "Too many."
// Long ones, which may quote a whole file, are shortened. May be empty.
std::string library_message(std::string_view what);

}  // namespace mpt
