// Rewrites the regular expressions of tokenizer files for PCRE2 so that they match the same text.
//
// tokenizer.json uses Oniguruma's Ruby syntax, tiktoken that of Rust's fancy-regex. Classes that
// mean other characters in PCRE2 are spelled out: \s, and properties, to which the characters newer
// than PCRE2's are added (later_characters.h). Anything not known to match the same is refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mpt {

enum class RegexSyntax : uint8_t { kOniguruma, kRust };

// For PCRE2_UTF | PCRE2_UCP. Throws Error with the byte offset in the pattern, what was found there
// and what would be accepted. Does not check that brackets match: PCRE2 does.
std::string pcre2_pattern(std::string_view pattern, RegexSyntax syntax);

}  // namespace mpt
