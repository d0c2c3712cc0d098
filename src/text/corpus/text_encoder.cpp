#include "text/corpus/text_encoder.h"

#include <cstring>
#include <utility>

#include "text/corpus/word_cache.h"
#include "text/sentencepiece/sentencepiece_model.h"

namespace mpt {
namespace {

constexpr size_t kMaxCachedWordBytes = 64;

bool piece_allows(const Piece& piece) {
  if (piece.type == PieceType::kUserDefined) return false;
  if (piece.type != PieceType::kNormal && piece.type != PieceType::kUnused)
    return true;  // never merged
  std::string_view text = piece.text;
  while (text.starts_with(kSpaceSymbol)) text.remove_prefix(kSpaceSymbol.size());
  return text.find(kSpaceSymbol) == std::string_view::npos;
}

// Length of the white space at `at`; 0 if there is none. A space symbol in the text counts as a
// space.
size_t space_length(std::string_view text, size_t at) {
  if (text[at] == ' ') return 1;
  return text[at] == kSpaceSymbol[0] && text.substr(at).starts_with(kSpaceSymbol)
             ? kSpaceSymbol.size()
             : 0;
}

// End of the word at `begin` (leading white space, then the rest): the position of the next white
// space. A single space at the end of the text stays with the preceding word, because it cannot be
// encoded by itself.
size_t word_end(std::string_view text, size_t begin) {
  bool in_space = true;
  for (size_t at = begin; at < text.size();) {
    const size_t space = space_length(text, at);
    if (space > 0 && !in_space && at + space < text.size()) return at;
    in_space = space > 0;
    at += space > 0 ? space : 1;
  }
  return text.size();
}

}  // namespace

bool words_are_independent(std::string_view bytes) {
  const SentencePieceModel model = parse_sentencepiece_model(bytes);
  const bool trained_so =
      model.model == PieceModel::kBpe && !model.space_as_suffix && model.byte_fallback;
  const bool normalizes_so = !model.changes_characters && model.add_dummy_prefix &&
                             !model.remove_extra_whitespaces && model.escape_whitespaces;
  return trained_so && normalizes_so && std::ranges::all_of(model.pieces, piece_allows);
}

TextEncoder::TextEncoder(const Tokenizer& tokenizer, WordCache& words, SpecialTokens special)
    : tokenizer_(tokenizer),
      words_(words),
      special_(special),
      word_by_word_(tokenizer.subwords() != nullptr ||
                    words_are_independent(tokenizer.model_bytes())) {}

void TextEncoder::append_subwords(std::string_view text, std::vector<int32_t>& ids) {
  tokenizer_.subwords()->split(text, special_, pieces_);
  for (const TextPiece& piece : pieces_.list)
    if (piece.token >= 0)
      ids.push_back(piece.token);
    else
      append_word(piece.text, ids);
}

void TextEncoder::append(std::string_view text, std::vector<int32_t>& ids) {
  if (tokenizer_.subwords() != nullptr) return append_subwords(text, ids);
  if (!word_by_word_) {
    const std::vector<int32_t> whole = tokenizer_.encode(text);
    ids.insert(ids.end(), whole.begin(), whole.end());
    return;
  }
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = word_end(text, begin);
    // The tokenizer prepends a space to any text; it stands in for the word's own first one.
    const size_t own_space = begin == 0 ? 0 : space_length(text, begin);
    append_word(text.substr(begin + own_space, end - begin - own_space), ids);
    begin = end;
  }
}

void TextEncoder::append_word(std::string_view word, std::vector<int32_t>& ids) {
  const HashedWord hashed(word);
  if (recent_.append(hashed, ids)) return;
  const size_t begin = ids.size();
  if (!words_.append(hashed, ids)) append_new_word(hashed, ids);
  recent_.insert(hashed, std::span(ids).subspan(begin));
}

void TextEncoder::append_new_word(const HashedWord& word, std::vector<int32_t>& ids) {
  const size_t begin = ids.size();
  if (tokenizer_.subwords() != nullptr) {
    tokenizer_.subwords()->encode_word(word.text, ids);
  } else {
    const std::vector<int32_t> encoded = tokenizer_.encode(word.text);
    ids.insert(ids.end(), encoded.begin(), encoded.end());
  }
  if (word.text.size() <= kMaxCachedWordBytes) words_.insert(word, std::span(ids).subspan(begin));
}

}  // namespace mpt
