// Parsed SentencePiece model file: its pieces, and the settings that decide how text becomes
// pieces. Field numbers and defaults are those of sentencepiece_model.proto.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/enum_names.h"

namespace mpt {

// Numbered as in the file, but from 0 instead of 1.
enum class PieceType : uint8_t { kNormal, kUnknown, kControl, kUserDefined, kUnused, kByte };
template <>
struct EnumNames<PieceType> {
  static constexpr std::array<std::string_view, 6> kNames{"normal",       "unknown", "control",
                                                          "user-defined", "unused",  "byte"};
};

struct Piece {
  std::string text;
  float score = 0;
  PieceType type = PieceType::kNormal;
};

// Numbered as in the file, but from 0 instead of 1.
enum class PieceModel : uint8_t { kUnigram, kBpe, kWord, kChar };
template <>
struct EnumNames<PieceModel> {
  static constexpr std::array<std::string_view, 4> kNames{"unigram", "bpe", "word", "char"};
};

// A model's spelling of a space.
inline constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";

struct SentencePieceModel {
  std::vector<Piece> pieces{};  // in id order
  PieceModel model = PieceModel::kUnigram;
  bool byte_fallback = false;  // text without a piece is spelled in byte pieces
  bool space_as_suffix = false;
  bool add_dummy_prefix = true;  // a space before the text
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;   // spaces become the space symbol
  bool changes_characters = false;  // before encoding, such as NFKC
  bool changes_decoded_text = false;
};

// Parses whatever SentencePiece loads. The result is unspecified for bytes that are not such a
// model.
SentencePieceModel parse_sentencepiece_model(std::string_view bytes);

}  // namespace mpt
