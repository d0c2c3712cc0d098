// Regular expressions of tokenizer files, rewritten for PCRE2 so that they match the same.
//
// tokenizer.json has the syntax of Oniguruma for Ruby, tiktoken that of Rust's fancy-regex. Classes
// are spelled out where PCRE2 means other characters by them: \s, and properties, whose characters
// newer than PCRE2's are added (later_characters.h). What is not known to match the same is
// refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mpt {

enum class RegexSyntax : uint8_t { kOniguruma, kRust };

// For PCRE2_UTF | PCRE2_UCP. Throws Error with the byte of the pattern, what was found there and
// what would be accepted. Brackets are not checked: PCRE2 does.
std::string pcre2_pattern(std::string_view pattern, RegexSyntax syntax);

}  // namespace mpt
