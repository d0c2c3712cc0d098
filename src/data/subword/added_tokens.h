// Tokens that are looked for in the text before it is split into words: the key "added_tokens" of
// tokenizer.json.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/subword/byte_trie.h"
#include "data/subword/normalizer.h"
#include "data/subword/pre_tokenizer.h"

namespace mpt {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool single_word = false;  // only where no word's character is beside it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool normalized = false;   // looked for in the normalized text, as its normalized content
  bool special = false;      // left out of decoded text
};

// Whether special tokens that a text spells are these tokens, or text like any other.
enum class SpecialTokens : uint8_t { kMatch, kText };
template <>
struct EnumNames<SpecialTokens> {
  static constexpr std::array<std::string_view, 2> kNames{"match", "text"};
};

class AddedTokens {
 public:
  AddedTokens() = default;
  // Contents must not be empty, and differ.
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer);

  [[nodiscard]] const std::vector<AddedToken>& tokens() const { return tokens_; }
  // Null if there is none of this id.
  [[nodiscard]] const AddedToken* find(int64_t id) const;
  // As decoders see it: the content of a token that is looked for in normalized text, normalized.
  [[nodiscard]] const std::string& decoded_text(const AddedToken& token) const;

  // Sets pieces.list to the tokens and the normalized text between them.
  void split(std::string_view text, const Normalizer& normalizer, SpecialTokens special,
             TextPieces& pieces) const;

 private:
  void append_matches(const TextPiece& piece, const ByteTrie& contents, SpecialTokens special,
                      std::vector<TextPiece>& out) const;

  std::vector<AddedToken> tokens_;  // by id
  std::vector<std::string> looked_for_;
  ByteTrie in_text_, in_normalized_;  // contents; values are places in tokens_
};

}  // namespace mpt
