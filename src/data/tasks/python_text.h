// What Python's str methods make of a text, by which the preprocessing of lm-eval is defined. Texts
// must be UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mpt {

// Code points: len().
int64_t python_length(std::string_view text);

// Without white space at the end, or at both ends: rstrip() and strip().
std::string_view python_rstrip(std::string_view text);
std::string_view python_strip(std::string_view text);

// The first character in title case, the others in lower case: capitalize(), by Unicode 14.
std::string python_capitalize(std::string_view text);

}  // namespace mpt
