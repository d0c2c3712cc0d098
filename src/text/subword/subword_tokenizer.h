// Tokenizer in the style of tokenizer.json: text is normalized and split into words, and each word
// is encoded separately.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/subword/added_tokens.h"
#include "text/subword/bpe.h"
#include "text/subword/pre_tokenizer.h"
#include "text/subword/subword_model.h"
#include "text/subword/text_decoder.h"
#include "text/subword/vocabulary.h"

namespace mpt {

// Contents of a tokenizer file, filled in by its readers.
struct SubwordParts {
  std::unique_ptr<Vocabulary> vocabulary;  // referenced by the model
  std::unique_ptr<SubwordModel> model;
  Normalizer normalizer;
  AddedTokens added;
  PreTokenizer pre_tokenizer;
  TextDecoder decoder;
  Symbols symbols = Symbols::kCharacters;  // how pieces spell text
  bool byte_fallback = false;              // pieces "<0x0A>" are bytes
  bool matches_special = true;  // true in tokenizer.json, false in tiktoken's encode_ordinary()
  bool template_begins_with_bos = false;               // for readers that follow post_processor
  int64_t bos = -1, eos = -1, pad = -1, unknown = -1;  // -1: none
};

// All members are const and thread-safe.
class SubwordTokenizer {
 public:
  explicit SubwordTokenizer(SubwordParts parts) : parts_(std::move(parts)) {}

  [[nodiscard]] const SubwordParts& parts() const { return parts_; }
  // Largest id plus 1.
  [[nodiscard]] int64_t vocab_size() const;
  // Returns "" for an id without a piece.
  [[nodiscard]] std::string piece(int64_t id) const;

  // Sets pieces.list to the words and tokens of the text. Throws Error if it is not UTF-8.
  void split(std::string_view text, SpecialTokens special, TextPieces& pieces) const;
  // Appends the ids of a word.
  void encode_word(std::string_view word, std::vector<int32_t>& ids) const {
    parts_.model->encode(word, ids);
  }
  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const;
  // Omits special tokens.
  [[nodiscard]] std::string decode(std::span<const int32_t> ids) const;

 private:
  SubwordParts parts_;
};

}  // namespace mpt
