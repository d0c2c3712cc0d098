#include "text/text_bytes.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/tensor.h"
#include "text/byte_level.h"
#include "text/sentencepiece/sentencepiece_model.h"

namespace mpt {
namespace {

// A space symbol counts as the space.
int32_t text_length(std::string_view piece, std::string_view space) {
  auto bytes = static_cast<int32_t>(piece.size());
  for (size_t at = 0; (at = piece.find(space, at)) != std::string_view::npos; at += space.size())
    bytes -= static_cast<int32_t>(space.size()) - 1;
  return bytes;
}

// --- spaces of a tokenizer.json or tiktoken file -------------------------------------------------

// How a tokenizer spells spaces, and where it adds them.
struct SpaceMarks {
  std::string space;  // space symbol
  bool before_text = false;
  bool after_token = false;             // one found in the text
  bool after_normalized_token = false;  // one found in the normalized text
};

std::string joined_words(const PreTokenizer& pre_tokenizer, const TextPiece& text) {
  TextPieces pieces;
  pieces.list.push_back(text);
  pre_tokenizer.split(pieces);
  std::string words;
  for (const TextPiece& word : pieces.list) words += word.text;
  return words;
}

// Infers them from the results for a letter, and for two with a space between them.
SpaceMarks space_marks_of(const SubwordParts& parts) {
  if (!parts.pre_tokenizer.keeps_text())
    throw error("its pre_tokenizer leaves out text, or adds spaces within it");
  const std::string letter = "x", one = parts.normalizer.apply(letter),
                    two = parts.normalizer.apply("x x");
  const auto at_start = [&](std::string_view text) {
    return joined_words(parts.pre_tokenizer, {.text = text, .token = -1, .at_start = true});
  };
  const auto behind_token = [&](std::string_view text) {
    return joined_words(parts.pre_tokenizer, {.text = text, .token = -1, .at_start = false});
  };
  const std::string first = at_start(one), both = at_start(two);
  const bool kept = first.ends_with(letter) && both.starts_with(first) && both.ends_with(letter) &&
                    both.size() > first.size() + letter.size();
  SpaceMarks marks;
  marks.before_text = first != letter;
  marks.after_token = behind_token(one) != letter;
  marks.after_normalized_token = behind_token(letter) != letter;
  if (kept) marks.space = both.substr(first.size(), both.size() - first.size() - letter.size());
  const bool is_character =
      !marks.space.empty() && character_bytes(marks.space[0]) == marks.space.size();
  const bool is_spelled = parts.symbols == Symbols::kBytes && marks.space != " ";
  if (!is_character || is_spelled || (marks.before_text && first != marks.space + letter))
    throw error(
        "it makes '{}' of 'x x'; bytes are known if a single character stands for a space, and no "
        "more than one is put before the text",
        both);
  return marks;
}

std::string text_of_piece(const SubwordParts& parts, const std::string& piece) {
  return parts.symbols == Symbols::kBytes ? bytes_of_byte_level(piece).value_or(piece) : piece;
}

// If pieces spell bytes as characters, two-byte characters also count as one.
int32_t length_of_byte(int byte, Symbols symbols) {
  return symbols == Symbols::kBytes && (byte & 0xC0) == 0x80 ? 0 : 1;
}

bool has_piece(const std::vector<Piece>& pieces, std::string_view text) {
  return std::ranges::any_of(pieces, [&](const Piece& piece) {
    return piece.text == text &&
           (piece.type == PieceType::kNormal || piece.type == PieceType::kUserDefined);
  });
}

}  // namespace

TextBytes TextBytes::of(const Tokenizer& tokenizer) {
  const SubwordTokenizer* const subwords = tokenizer.subwords();
  try {
    TextBytes text = subwords ? of_subwords(*subwords) : of_sentencepiece(tokenizer);
    text.tokenizer_ = tokenizer.path();
    return text;
  } catch (const Error& reason) {
    return TextBytes(fmt::format("{}: {}", tokenizer.path(), reason.what()));
  }
}

TextBytes TextBytes::of_subwords(const SubwordTokenizer& tokenizer) {
  const SubwordParts& parts = tokenizer.parts();
  const SpaceMarks marks = space_marks_of(parts);
  TextBytes text;
  text.adds_space_before_text_ = marks.before_text;
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    PieceBytes& piece = text.pieces_.emplace_back();
    const std::string spelled = tokenizer.piece(id);
    if (const AddedToken* const added = parts.added.find(id)) {
      const bool follows = added->normalized ? marks.after_normalized_token : marks.after_token;
      if (!added->special) piece.bytes = int32_t(parts.added.decoded_text(*added).size());
      piece.begins_text = added->special || follows;
    } else if (id == parts.bos || id == parts.eos || id == parts.pad) {
      piece.begins_text = true;
    } else if (const int byte = parts.byte_fallback ? byte_of_piece(spelled) : -1; byte >= 0) {
      piece = {.bytes = length_of_byte(byte, parts.symbols), .byte = int16_t(byte)};
    } else {
      const std::string of_piece = text_of_piece(parts, spelled);
      piece = {.bytes = spelled.empty() ? kUnknown : text_length(of_piece, marks.space),
               .begins_with_space = of_piece.starts_with(marks.space)};
    }
    if (id == parts.unknown) piece.bytes = kUnknown;
  }
  if (parts.byte_fallback && parts.vocabulary->id_of(marks.space) < 0)
    text.spell_space(marks.space);
  return text;
}

TextBytes TextBytes::of_sentencepiece(const Tokenizer& tokenizer) {
  TextBytes text;
  const SentencePieceModel model = parse_sentencepiece_model(tokenizer.model_bytes());
  const std::string_view space = model.escape_whitespaces ? kSpaceSymbol : " ";
  text.adds_space_before_text_ = model.add_dummy_prefix && !model.space_as_suffix;
  text.adds_space_behind_text_ = model.add_dummy_prefix && model.space_as_suffix;
  for (const Piece& piece : model.pieces) {
    if (piece.type == PieceType::kUnknown)
      text.pieces_.push_back({.bytes = kUnknown});
    else if (piece.type == PieceType::kControl)
      text.pieces_.push_back({.begins_text = true});
    else if (piece.type == PieceType::kByte)
      text.pieces_.push_back({.bytes = 1, .byte = int16_t(byte_of_piece(piece.text))});
    else
      text.pieces_.push_back({.bytes = text_length(piece.text, space),
                              .begins_with_space = piece.text.starts_with(space),
                              .ends_with_space = piece.text.ends_with(space)});
  }
  if (!has_piece(model.pieces, space)) text.spell_space(space);
  return text;
}

// Counts the symbol's first byte piece as the space, the others as nothing.
void TextBytes::spell_space(std::string_view symbol) {
  spelled_space_ = symbol;
  for (PieceBytes& piece : pieces_)
    piece.begins_with_space |= piece.byte == static_cast<unsigned char>(symbol.front());
}

const TextBytes::PieceBytes* TextBytes::find(int32_t id) const {
  return id < 0 || id >= std::ssize(pieces_) ? nullptr : &pieces_[static_cast<size_t>(id)];
}

// Bytes of the space symbol that end with the row's first token, as far as it shows.
size_t TextBytes::spelled_by(int32_t first) const {
  const PieceBytes* const piece = find(first);
  if (piece == nullptr || piece->byte < 0) return 0;
  const size_t at = spelled_space_.rfind(static_cast<char>(piece->byte));
  return at == std::string::npos ? 0 : at + 1;
}

size_t TextBytes::spelled_after(size_t spelled, int32_t token) const {
  const PieceBytes* const piece = find(token);
  if (piece == nullptr || piece->byte < 0 || spelled_space_.empty()) return 0;
  const auto is_next = [&](size_t at) {
    return at < spelled_space_.size() &&
           static_cast<unsigned char>(spelled_space_[at]) == piece->byte;
  };
  return is_next(spelled) ? spelled + 1 : is_next(0) ? 1 : 0;
}

// Bytes that began like the space symbol but continue differently count after all.
int64_t TextBytes::bytes_after(size_t spelled, const PieceBytes& piece) const {
  if (spelled == 0 || spelled == spelled_space_.size()) return piece.bytes;
  const bool goes_on = piece.byte == static_cast<unsigned char>(spelled_space_[spelled]);
  return goes_on ? 0 : piece.bytes + int64_t(spelled) - 1;
}

bool TextBytes::is_added_space(const PieceBytes* before, const PieceBytes& piece,
                               size_t spelled) const {
  if (before == nullptr) return false;
  if (adds_space_before_text_) return before->begins_text && piece.begins_with_space;
  const bool ends = before->ends_with_space || (spelled > 0 && spelled == spelled_space_.size());
  return adds_space_behind_text_ && piece.begins_text && ends;
}

std::optional<int64_t> TextBytes::of_targets(std::span<const int32_t> tokens,
                                             std::span<const int32_t> targets) const {
  if (first_unknown(targets)) return std::nullopt;
  int64_t bytes = 0;
  size_t spelled = 0;  // bytes of the space symbol before the target
  for (size_t i = 0; i < targets.size(); ++i) {
    spelled = i == 0 ? spelled_by(tokens[i]) : spelled_after(spelled, tokens[i]);
    if (targets[i] == kIgnoreTarget) continue;
    const PieceBytes& piece = pieces_[static_cast<size_t>(targets[i])];
    bytes += bytes_after(spelled, piece) - int64_t{is_added_space(find(tokens[i]), piece, spelled)};
  }
  return bytes;
}

std::optional<int32_t> TextBytes::first_unknown(std::span<const int32_t> targets) const {
  for (const int32_t target : targets) {
    if (target == kIgnoreTarget) continue;
    const PieceBytes* const piece = find(target);
    if (piece == nullptr || piece->bytes == kUnknown) return target;
  }
  return std::nullopt;
}

std::string TextBytes::why_unknown(int32_t target) const {
  if (!why_unknown_.empty()) return why_unknown_;
  return fmt::format("{}: has no text for the token {} of the data, {}", tokenizer_, target,
                     find(target) == nullptr
                         ? fmt::format("outside of its vocabulary of {}", pieces_.size())
                         : "its unknown piece or an id without one");
}

}  // namespace mpt
