// UTF-8 bytes of the text that tokens stand for, which makes losses of different tokenizers
// comparable: bits per byte = sum of losses in nats / (ln 2 * bytes).
//
// A byte piece is one byte, whatever it would look like decoded alone; control pieces are none; a
// space symbol is one; the space that the tokenizer puts before a text is none, after a control
// piece such as the end of the text before. Text that the tokenizer changes (NFKC, repeated spaces)
// counts as changed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/subword/subword_tokenizer.h"
#include "data/tokenizer.h"

namespace mpt {

class TextBytes {
 public:
  // Of SentencePiece models and byte-level tokenizers; nullopt for others, whose pieces mean
  // different text in different places.
  static std::optional<TextBytes> of(const Tokenizer& tokenizer);

  // Bytes of the targets of a row, whose inputs are `tokens`; nullopt if one of them is the unknown
  // piece or outside the tokenizer's vocabulary, of which no bytes are known.
  [[nodiscard]] std::optional<int64_t> of_targets(std::span<const int32_t> tokens,
                                                  std::span<const int32_t> targets) const;

 private:
  struct PieceBytes {
    int32_t bytes = 0;  // kUnknown: not known
    bool begins_with_space = false;
    bool begins_text = false;  // what follows is the beginning of a text
  };
  static constexpr int32_t kUnknown = -1;

  static TextBytes of_sentencepiece(const Tokenizer& tokenizer);
  static TextBytes of_byte_level(const SubwordTokenizer& tokenizer);

  std::vector<PieceBytes> pieces_;  // by id
  bool adds_space_before_text_ = false;
};

}  // namespace mpt
