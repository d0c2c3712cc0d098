// Compiled regular expression of a tokenizer file (PCRE2 with its JIT compiler).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "text/subword/regex_syntax.h"

struct pcre2_real_code_8;

namespace mpt {

// [begin, end) of a text.
struct TextRange {
  size_t begin = 0, end = 0;
};

// Const members are thread-safe.
class Regex {
 public:
  // Throws Error if the pattern is unsupported (regex_syntax.h), too large, or can match the empty
  // text.
  Regex(std::string_view pattern, RegexSyntax syntax);
  // Matches exactly this text, which must not be empty.
  static Regex of_text(std::string_view text);

  // Finds the first match that begins at or after `from`. `text` must be UTF-8. Throws Error if the
  // search exceeds the library's limits on steps and memory.
  [[nodiscard]] std::optional<TextRange> find(std::string_view text, size_t from) const;

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  Regex() = default;
  void compile(std::string_view pattern, uint32_t options);

  std::string pattern_;  // original, for messages
  std::unique_ptr<pcre2_real_code_8, Free> code_;
};

}  // namespace mpt
