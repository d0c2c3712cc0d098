#include "text/sentencepiece/sentencepiece_model.h"

#include <bit>

#include "text/sentencepiece/proto_message.h"

namespace mpt {
namespace {

// Returns 0 for a field that is not a float.
float float_of_bytes(std::string_view bytes) {
  if (bytes.size() != sizeof(float)) return 0;
  uint32_t bits = 0;
  for (size_t i = 0; i < bytes.size(); ++i)
    bits |= uint32_t{static_cast<unsigned char>(bytes[i])} << 8 * i;
  return std::bit_cast<float>(bits);
}

// The file counts from 1; an unknown number is read as the first enumerator.
template <NamedEnum E>
E enum_of(uint64_t number) {
  return number >= 1 && number <= EnumNames<E>::kNames.size() ? static_cast<E>(number - 1) : E{};
}

Piece piece_of(std::string_view message) {
  Piece piece;
  for (ProtoMessage fields(message); const auto field = fields.next();) {
    if (field->number == 1) piece.text = field->bytes;
    if (field->number == 2) piece.score = float_of_bytes(field->bytes);
    if (field->number == 3) piece.type = enum_of<PieceType>(field->value);
  }
  return piece;
}

void read_trainer(std::string_view message, SentencePieceModel& model) {
  for (ProtoMessage fields(message); const auto field = fields.next();) {
    if (field->number == 3) model.model = enum_of<PieceModel>(field->value);
    if (field->number == 24) model.space_as_suffix = field->value != 0;
    if (field->number == 35) model.byte_fallback = field->value != 0;
  }
}

void read_normalizer(std::string_view message, SentencePieceModel& model) {
  for (ProtoMessage fields(message); const auto field = fields.next();) {
    if (field->number == 2) model.changes_characters = !field->bytes.empty();
    if (field->number == 3) model.add_dummy_prefix = field->value != 0;
    if (field->number == 4) model.remove_extra_whitespaces = field->value != 0;
    if (field->number == 5) model.escape_whitespaces = field->value != 0;
  }
}

void read_denormalizer(std::string_view message, SentencePieceModel& model) {
  for (ProtoMessage fields(message); const auto field = fields.next();)
    if (field->number == 2) model.changes_decoded_text = !field->bytes.empty();
}

}  // namespace

SentencePieceModel parse_sentencepiece_model(std::string_view bytes) {
  SentencePieceModel model;
  for (ProtoMessage fields(bytes); const auto field = fields.next();) {
    if (field->number == 1) model.pieces.push_back(piece_of(field->bytes));
    if (field->number == 2) read_trainer(field->bytes, model);
    if (field->number == 3) read_normalizer(field->bytes, model);
    if (field->number == 5) read_denormalizer(field->bytes, model);
  }
  return model;
}

}  // namespace mpt
