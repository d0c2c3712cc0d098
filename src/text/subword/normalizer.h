// Changes made to the text before it is split: the key "normalizer" of tokenizer.json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/enum_names.h"
#include "text/subword/regex.h"

namespace mpt {

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };
template <>
struct EnumNames<NormalForm> {
  static constexpr std::array<std::string_view, 4> kNames{"NFC", "NFD", "NFKC", "NFKD"};
};

// Normal form as in the tokenizers library: Unicode 9 plus a few later characters; others stay
// unchanged (later_characters.h). `text` must be UTF-8.
std::string normalized(std::string_view text, NormalForm form);

struct PrependText {
  std::string text;  // prepended to a nonempty text
};
struct ReplaceMatches {
  Regex regex;
  std::string by;
};

// Limit on what steps may make of a text, so that a file cannot make a short text fill the memory.
inline size_t most_bytes_of(size_t bytes) { return 64 * bytes + 64; }

// Replaces each match in `text`. Throws Error if the result has more than `most` bytes.
std::string replaced(std::string_view text, const ReplaceMatches& replace, size_t most);

class Normalizer {
 public:
  using Step = std::variant<NormalForm, PrependText, ReplaceMatches>;

  void add(Step step) { steps_.push_back(std::move(step)); }
  [[nodiscard]] bool empty() const { return steps_.empty(); }
  // Whether all steps are normal forms.
  [[nodiscard]] bool only_forms() const;
  // Throws Error if the text grows beyond most_bytes_of() its size.
  [[nodiscard]] std::string apply(std::string text) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace mpt
