// Splits text into words that are encoded separately: the key "pre_tokenizer" of tokenizer.json,
// and the pattern of a tiktoken file.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/enum_names.h"
#include "text/subword/regex.h"

namespace mpt {

// Part of a text: a word, or a token found in it.
struct TextPiece {
  std::string_view text;
  int32_t token = -1;     // token id; -1: a word
  bool at_start = false;  // begins the whole text
};

// Parts of a text in order, with storage for those that are not in the text itself.
struct TextPieces {
  std::vector<TextPiece> list, next;
  std::deque<std::string> changed;

  std::string_view keep(std::string text) { return changed.emplace_back(std::move(text)); }
};

enum class SplitBehavior : uint8_t {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous
};
template <>
struct EnumNames<SplitBehavior> {
  static constexpr std::array<std::string_view, 5> kNames{
      "Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
};

// Splits at matches or, with `invert`, at what is between them.
struct SplitText {
  Regex regex;
  SplitBehavior behavior;
  bool invert = false;
};
// Splits into matches; text outside them is an error (tiktoken).
struct MatchText {
  Regex regex;
};
// Prepends a space to a piece that does not begin with one (ByteLevel).
struct PrefixSpace {};

enum class PrependScheme : uint8_t { kFirst, kNever, kAlways };
template <>
struct EnumNames<PrependScheme> {
  static constexpr std::array<std::string_view, 3> kNames{"first", "never", "always"};
};
// Replaces spaces with `replacement`, prepends one, and starts a piece at each.
struct Metaspace {
  std::string replacement;
  Regex regex;  // matches the replacement
  PrependScheme prepend = PrependScheme::kAlways;
  bool split = true;
};

class PreTokenizer {
 public:
  using Step = std::variant<SplitText, MatchText, PrefixSpace, Metaspace>;

  void add(Step step) { steps_.push_back(std::move(step)); }
  // Whether joining the words of a text gives the text back, apart from the symbols for its spaces
  // and one more in front.
  [[nodiscard]] bool keeps_text() const;
  // Replaces the words of pieces.list by those they split into. Texts must be UTF-8.
  void split(TextPieces& pieces) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace mpt
