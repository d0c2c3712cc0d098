// UTF-8: validation, and places where a text can be cut.
#pragma once

#include <cstddef>
#include <string_view>

namespace mpt {

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

}  // namespace mpt
