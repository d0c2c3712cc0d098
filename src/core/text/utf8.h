// UTF-8 text: validation, white space, and cut positions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace mpt {

// Length of the longest valid UTF-8 prefix (no overlong forms, no surrogates, at most U+10FFFF);
// text.size() if the whole text is valid.
size_t valid_utf8_prefix(std::string_view text);

// Whether the text has only spaces, tabs and line ends, or is empty.
bool is_blank(std::string_view text);

// Returns the text without trailing spaces, tabs and line ends.
std::string_view without_trailing_space(std::string_view text);

// Removes the byte order mark that some programs put at the start of a file.
std::string_view without_byte_order_mark(std::string_view text);

// Where to cut a text longer than `limit` bytes: after the last white space in the second half of
// the first `limit` bytes, else at a character boundary. Returns between 1 and max(limit, 1).
size_t cut_position(std::string_view text, size_t limit);

}  // namespace mpt
