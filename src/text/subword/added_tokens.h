// Tokens searched for in the text before it is split into words: the key "added_tokens" of
// tokenizer.json.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/subword/byte_trie.h"
#include "text/subword/normalizer.h"
#include "text/subword/pre_tokenizer.h"

namespace mpt {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool single_word = false;  // only if not adjacent to a word character
  bool lstrip = false;       // absorbs the white space before it
  bool rstrip = false;       // absorbs the white space after it
  bool normalized = false;   // searched for in the normalized text, by its normalized content
  bool special = false;      // omitted from decoded text
};

// Whether special tokens spelled in a text become tokens, or are treated as ordinary text.
enum class SpecialTokens : uint8_t { kMatch, kText };
template <>
struct EnumNames<SpecialTokens> {
  static constexpr std::array<std::string_view, 2> kNames{"match", "text"};
};

class AddedTokens {
 public:
  AddedTokens() = default;
  // Contents must be distinct and not empty.
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer);

  [[nodiscard]] const std::vector<AddedToken>& tokens() const { return tokens_; }
  // Null if no token has this id.
  [[nodiscard]] const AddedToken* find(int64_t id) const;
  // The text decoders see: normalized for tokens searched for in normalized text.
  [[nodiscard]] const std::string& decoded_text(const AddedToken& token) const;

  // Sets pieces.list to the tokens and the normalized text between them.
  void split(std::string_view text, const Normalizer& normalizer, SpecialTokens special,
             TextPieces& pieces) const;

 private:
  void append_matches(const TextPiece& piece, const ByteTrie& contents, SpecialTokens special,
                      std::vector<TextPiece>& out) const;

  std::vector<AddedToken> tokens_;  // sorted by id
  std::vector<std::string> looked_for_;
  ByteTrie in_text_, in_normalized_;  // contents; values are indices into tokens_
};

}  // namespace mpt
