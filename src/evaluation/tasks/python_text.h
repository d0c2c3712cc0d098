// Python's str methods, which define the preprocessing of lm-eval. Texts must be UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mpt {

// Returns the number of code points: len().
int64_t python_length(std::string_view text);

// Strip white space at the end, or at both ends: rstrip() and strip().
std::string_view python_rstrip(std::string_view text);
std::string_view python_strip(std::string_view text);

// Converts the first character to title case, the others to lower case: capitalize(), by Unicode
// 14.
std::string python_capitalize(std::string_view text);

}  // namespace mpt
