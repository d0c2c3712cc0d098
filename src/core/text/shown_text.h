// Makes text from a file safe to display.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace mpt {

// Returns the text if it has at most `most` bytes, else its start, cut between characters, and
// "...".
std::string shortened(std::string_view text, size_t most);

// Replaces control characters except tabs and line ends, which could steer a terminal, and bytes
// that are not UTF-8 with U+FFFD.
std::string without_controls(std::string_view text);

}  // namespace mpt
