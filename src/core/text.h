// Text for people: UTF-8, spelling suggestions, counts with nouns, messages of libraries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mpt {

// UTF-8: validation, and where text may be cut.

// Length of the longest valid UTF-8 prefix (no overlong forms, no surrogates, at most U+10FFFF);
// text.size() if the whole text is valid.
size_t valid_utf8_prefix(std::string_view text);

// Whether the text has only spaces, tabs and line ends (or is empty).
bool is_blank(std::string_view text);

// The text without trailing spaces, tabs and line ends.
std::string_view without_trailing_space(std::string_view text);

// The text of a file without the byte order mark that some programs put first.
std::string_view without_byte_order_mark(std::string_view text);

// Where to cut a text longer than `limit` bytes: after the last white space in the second half of
// the first `limit` bytes, else at a character boundary. Returns between 1 and max(limit, 1).
size_t cut_position(std::string_view text, size_t limit);

// What may be shown of a text from a file.

// The text if it has at most `most` bytes, else its start, cut between characters, and "...".
std::string shortened(std::string_view text, size_t most);

// Control characters but tabs and line ends, which steer a terminal, and bytes that are not UTF-8
// become U+FFFD.
std::string without_controls(std::string_view text);

// "did you mean ...?": the known name that a mistyped name most likely means.

// Number of insertions, deletions, substitutions and swaps of neighbours that turn one text into
// the other.
int64_t edit_distance(std::string_view a, std::string_view b);

// The closest of `known`, the first if several are equally close; nothing if all differ in more
// than a third of the letters.
std::optional<std::string> nearest_name(std::string_view name,
                                        const std::vector<std::string>& known);

// At most `count` of `known`, most similar first: names that contain `name`, then the others by
// edit distance.
std::vector<std::string> nearest_names(std::string_view name, std::vector<std::string> known,
                                       int64_t count);

// Lower case, '-' replaced by '_': "BF16" -> "bf16".
std::string plain_spelling(std::string_view name);

// "1 token", "2 tokens"; "2 batches" with the ending "es".

inline std::string counted(int64_t n, std::string_view noun, std::string_view ending = "s") {
  return std::to_string(n) + " " + std::string(noun) + std::string(n == 1 ? "" : ending);
}

// A library's error message without its own names and source files, which tell a user nothing.

//   "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
//                                                     -> "line 1, column 2: ..."
//   "Internal: ./src/a.cc(232) [x == y] Too many."    -> "Too many."
// Long messages, which may quote a whole file, are shortened. The result may be empty.
std::string library_message(std::string_view what);

}  // namespace mpt
