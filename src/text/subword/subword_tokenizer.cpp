#include "text/subword/subword_tokenizer.h"

#include <algorithm>

#include "core/check.h"
#include "core/text/utf8.h"

namespace mpt {

int64_t SubwordTokenizer::vocab_size() const {
  const std::vector<AddedToken>& added = parts_.added.tokens();
  return std::max(parts_.vocabulary->size(), added.empty() ? 0 : int64_t{added.back().id} + 1);
}

std::string SubwordTokenizer::piece(int64_t id) const {
  if (const AddedToken* const token = parts_.added.find(id)) return token->content;
  const std::string* const text = parts_.vocabulary->text_of(id);
  return text == nullptr ? "" : *text;
}

void SubwordTokenizer::split(std::string_view text, SpecialTokens special,
                             TextPieces& pieces) const {
  if (const size_t valid = valid_utf8_prefix(text); valid < text.size())
    throw error("byte {} of a text of {} bytes is not UTF-8", valid, text.size());
  if (!parts_.matches_special) special = SpecialTokens::kText;
  parts_.added.split(text, parts_.normalizer, special, pieces);
  parts_.pre_tokenizer.split(pieces);
}

std::vector<int32_t> SubwordTokenizer::encode(std::string_view text) const {
  TextPieces pieces;
  std::vector<int32_t> ids;
  split(text, SpecialTokens::kMatch, pieces);
  for (const TextPiece& piece : pieces.list)
    if (piece.token >= 0)
      ids.push_back(piece.token);
    else
      encode_word(piece.text, ids);
  return ids;
}

std::string SubwordTokenizer::decode(std::span<const int32_t> ids) const {
  std::vector<std::string> pieces;
  for (const int32_t id : ids) {
    if (const AddedToken* const token = parts_.added.find(id)) {
      if (!token->special) pieces.push_back(parts_.added.decoded_text(*token));
    } else if (const std::string* const text = parts_.vocabulary->text_of(id)) {
      pieces.push_back(*text);
    }
  }
  return parts_.decoder.decode(std::move(pieces));
}

}  // namespace mpt
