#include "data/sentencepiece_model.h"

#include <bit>
#include <optional>

namespace mpt {
namespace {

// The part of protocol buffers that a model needs: the fields of one message, in order.
struct Field {
  uint32_t number;
  uint64_t value;          // of an integer
  std::string_view bytes;  // of a string, a nested message or a float
};

class Message {
 public:
  explicit Message(std::string_view bytes) : rest_(bytes) {}

  // Nothing at the end, or if the rest is not a valid message.
  std::optional<Field> next() {
    if (rest_.empty()) return std::nullopt;
    const uint64_t key = integer();
    Field field{static_cast<uint32_t>(key >> 3), 0, {}};
    switch (key & 7) {
      case 0:
        field.value = integer();
        break;
      case 1:
        take(8);
        break;
      case 2:
        field.bytes = take(integer());
        break;
      case 5:
        field.bytes = take(4);
        break;
      default:
        return std::nullopt;
    }
    return field;
  }

 private:
  uint64_t integer() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) break;
    }
    return value;
  }
  std::string_view take(uint64_t count) {
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(taken.size());
    return taken;
  }

  std::string_view rest_;
};

float float_of_bytes(std::string_view bytes) {
  uint32_t bits = 0;
  for (size_t i = 0; i < bytes.size(); ++i)
    bits |= uint32_t{static_cast<unsigned char>(bytes[i])} << 8 * i;
  return std::bit_cast<float>(bits);
}

// The file counts from 1; a number that this program does not know is taken as the first.
template <NamedEnum E>
E enum_of(uint64_t number) {
  return number >= 1 && number <= EnumNames<E>::kNames.size() ? static_cast<E>(number - 1) : E{};
}

Piece piece_of(std::string_view message) {
  Piece piece;
  for (Message fields(message); const auto field = fields.next();) {
    if (field->number == 1) piece.text = field->bytes;
    if (field->number == 2) piece.score = float_of_bytes(field->bytes);
    if (field->number == 3) piece.type = enum_of<PieceType>(field->value);
  }
  return piece;
}

void read_trainer(std::string_view message, SentencePieceModel& model) {
  for (Message fields(message); const auto field = fields.next();) {
    if (field->number == 3) model.model = enum_of<PieceModel>(field->value);
    if (field->number == 24) model.space_as_suffix = field->value != 0;
    if (field->number == 35) model.byte_fallback = field->value != 0;
  }
}

void read_normalizer(std::string_view message, SentencePieceModel& model) {
  for (Message fields(message); const auto field = fields.next();) {
    if (field->number == 2) model.changes_characters = !field->bytes.empty();
    if (field->number == 3) model.add_dummy_prefix = field->value != 0;
    if (field->number == 4) model.remove_extra_whitespaces = field->value != 0;
    if (field->number == 5) model.escape_whitespaces = field->value != 0;
  }
}

void read_denormalizer(std::string_view message, SentencePieceModel& model) {
  for (Message fields(message); const auto field = fields.next();)
    if (field->number == 2) model.changes_decoded_text = !field->bytes.empty();
}

}  // namespace

SentencePieceModel parse_sentencepiece_model(std::string_view bytes) {
  SentencePieceModel model;
  for (Message fields(bytes); const auto field = fields.next();) {
    if (field->number == 1) model.pieces.push_back(piece_of(field->bytes));
    if (field->number == 2) read_trainer(field->bytes, model);
    if (field->number == 3) read_normalizer(field->bytes, model);
    if (field->number == 5) read_denormalizer(field->bytes, model);
  }
  return model;
}

}  // namespace mpt
