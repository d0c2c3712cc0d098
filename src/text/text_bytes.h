// Number of UTF-8 bytes that tokens stand for, which makes losses of different tokenizers
// comparable: bits per byte = sum of losses in nats / (ln 2 * bytes).
//
// Counts the bytes of the text given to the tokenizer, as far as the tokenizer preserves it: text
// that it changes (NFKC, repeated spaces) counts as changed. A byte piece counts as one byte,
// whatever it would look like decoded by itself; control pieces and special tokens count as zero; a
// space symbol counts as one, even if spelled in byte pieces. The space that the tokenizer itself
// adds before or after a text counts as zero next to the control piece that ends the preceding
// text.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "text/subword/subword_tokenizer.h"
#include "text/tokenizer.h"

namespace mpt {

class TextBytes {
 public:
  // Knows no bytes, for this reason.
  explicit TextBytes(std::string why_unknown = "") : why_unknown_(std::move(why_unknown)) {}
  // Knows nothing for a tokenizer that drops text or adds more to it than one space at either end.
  static TextBytes of(const Tokenizer& tokenizer);

  // Total bytes of a row's targets, whose inputs are `tokens`; nullopt if first_unknown() finds
  // one. For a character spelled in byte pieces and cut by the start of the row, the result may be
  // off by one or two if its bytes could be those of the space symbol.
  [[nodiscard]] std::optional<int64_t> of_targets(std::span<const int32_t> tokens,
                                                  std::span<const int32_t> targets) const;

  // First target without known bytes: the unknown piece, or an id without a piece or outside the
  // vocabulary.
  [[nodiscard]] std::optional<int32_t> first_unknown(std::span<const int32_t> targets) const;
  // For messages.
  [[nodiscard]] std::string why_unknown(int32_t target) const;

 private:
  struct PieceBytes {
    int32_t bytes = 0;  // kUnknown: not known
    int16_t byte = -1;  // value of a byte piece; -1: not a byte piece
    bool begins_with_space = false;
    bool ends_with_space = false;
    bool begins_text = false;  // a text begins after this piece
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

  std::string tokenizer_;           // path
  std::string why_unknown_;         // for all tokens; "" if only individual ones are unknown
  std::vector<PieceBytes> pieces_;  // by id
  std::string spelled_space_;       // space symbol, if only its bytes have pieces
  bool adds_space_before_text_ = false;
  bool adds_space_behind_text_ = false;
};

}  // namespace mpt
