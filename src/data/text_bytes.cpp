#include "data/text_bytes.h"

#include "core/tensor.h"
#include "data/sentencepiece/sentencepiece_model.h"

namespace mpt {
namespace {

// Space symbols count as the spaces they stand for.
int32_t text_length(std::string_view piece) {
  auto bytes = static_cast<int32_t>(piece.size());
  for (size_t at = 0; (at = piece.find(kSpaceSymbol, at)) != std::string_view::npos;
       at += kSpaceSymbol.size())
    bytes -= static_cast<int32_t>(kSpaceSymbol.size()) - 1;
  return bytes;
}

int32_t bytes_of(const Piece& piece, int32_t unknown) {
  switch (piece.type) {
    case PieceType::kUnknown:
      return unknown;
    case PieceType::kControl:
      return 0;
    case PieceType::kByte:
      return 1;
    default:
      return text_length(piece.text);
  }
}

}  // namespace

std::optional<TextBytes> TextBytes::of(const Tokenizer& tokenizer) {
  const SubwordTokenizer* subwords = tokenizer.subwords();
  if (subwords == nullptr) return of_sentencepiece(tokenizer);
  return subwords->parts().decoder.joins_bytes() ? std::optional(of_byte_level(*subwords))
                                                 : std::nullopt;
}

TextBytes TextBytes::of_byte_level(const SubwordTokenizer& tokenizer) {
  TextBytes text;
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string piece = tokenizer.piece(id);
    const AddedToken* added = tokenizer.parts().added.find(id);
    const bool special = added != nullptr && added->special;
    const auto bytes = static_cast<int32_t>(bytes_of_byte_level(piece).value_or(piece).size());
    text.pieces_.push_back({.bytes = special ? 0 : piece.empty() ? kUnknown : bytes});
  }
  return text;
}

TextBytes TextBytes::of_sentencepiece(const Tokenizer& tokenizer) {
  TextBytes text;
  const SentencePieceModel model = parse_sentencepiece_model(tokenizer.model_bytes());
  text.adds_space_before_text_ = model.add_dummy_prefix && !model.space_as_suffix;
  for (const Piece& piece : model.pieces)
    text.pieces_.push_back({.bytes = bytes_of(piece, kUnknown),
                            .begins_with_space = piece.text.starts_with(kSpaceSymbol),
                            .begins_text = piece.type == PieceType::kControl});
  return text;
}

std::optional<int64_t> TextBytes::of_targets(std::span<const int32_t> tokens,
                                             std::span<const int32_t> targets) const {
  const auto known = [&](int32_t id) { return id >= 0 && id < std::ssize(pieces_); };
  int64_t bytes = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] == kIgnoreTarget) continue;
    if (!known(targets[i])) return std::nullopt;
    const PieceBytes& piece = pieces_[static_cast<size_t>(targets[i])];
    if (piece.bytes == kUnknown) return std::nullopt;
    const bool first = known(tokens[i]) && pieces_[static_cast<size_t>(tokens[i])].begins_text;
    bytes += piece.bytes - int64_t{first && piece.begins_with_space && adds_space_before_text_};
  }
  return bytes;
}

}  // namespace mpt
