// UTF-8 bytes of the text that tokens stand for, which makes losses of different tokenizers
// comparable: bits per byte = sum of losses in nats / (ln 2 * bytes).
//
// They are the bytes of the text as it was given to the tokenizer, as far as the tokenizer keeps
// it: text that it changes (NFKC, repeated spaces) counts as changed. A byte piece is one byte,
// whatever it would look like decoded alone; control pieces and special tokens are none; what
// stands for a space is one, also where it is spelled in byte pieces. The space that the tokenizer
// itself puts before a text, or behind it, is none, next to the control piece that ends the text
// before.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/subword/subword_tokenizer.h"
#include "data/tokenizer.h"

namespace mpt {

class TextBytes {
 public:
  // No bytes are known, for this reason.
  explicit TextBytes(std::string why_unknown = "") : why_unknown_(std::move(why_unknown)) {}
  // Of a tokenizer that leaves out text or adds more to it than one space before or behind it,
  // nothing is known.
  static TextBytes of(const Tokenizer& tokenizer);

  // Bytes of the targets of a row, whose inputs are `tokens`; nullopt if first_unknown() finds one.
  // Of a character that is spelled in byte pieces and cut by the row's beginning, the bytes may be
  // off by one or two if its bytes could be those of what stands for a space.
  [[nodiscard]] std::optional<int64_t> of_targets(std::span<const int32_t> tokens,
                                                  std::span<const int32_t> targets) const;

  // The first target of which no bytes are known: the unknown piece, an id without a piece or
  // outside of the vocabulary.
  [[nodiscard]] std::optional<int32_t> first_unknown(std::span<const int32_t> targets) const;
  // For messages.
  [[nodiscard]] std::string why_unknown(int32_t target) const;

 private:
  struct PieceBytes {
    int32_t bytes = 0;  // kUnknown: not known
    int16_t byte = -1;  // that a byte piece stands for; -1: it is none
    bool begins_with_space = false;
    bool ends_with_space = false;
    bool begins_text = false;  // what follows is the beginning of a text
  };
  static constexpr int32_t kUnknown = -1;

  static TextBytes of_sentencepiece(const Tokenizer& tokenizer);
  static TextBytes of_subwords(const SubwordTokenizer& tokenizer);
  void spell_space(std::string_view symbol);
  [[nodiscard]] const PieceBytes* find(int32_t id) const;
  [[nodiscard]] size_t spelled_by(int32_t first) const;
  [[nodiscard]] size_t spelled_after(size_t spelled, int32_t token) const;
  [[nodiscard]] int64_t bytes_after(size_t spelled, const PieceBytes& piece) const;
  [[nodiscard]] bool is_added_space(const PieceBytes* before, const PieceBytes& piece,
                                    size_t spelled) const;

  std::string tokenizer_;           // its path
  std::string why_unknown_;         // of all tokens; "" if only single ones are unknown
  std::vector<PieceBytes> pieces_;  // by id
  std::string spelled_space_;  // what stands for a space, if it has no piece but those of its bytes
  bool adds_space_before_text_ = false;
  bool adds_space_behind_text_ = false;
};

}  // namespace mpt
