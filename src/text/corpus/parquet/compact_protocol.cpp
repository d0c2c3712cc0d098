#include "text/corpus/parquet/compact_protocol.h"

namespace mpt {
namespace {

constexpr int kMostDepth = 32;  // Parquet's own structures nest 6 deep

uint8_t take_byte(std::string_view& bytes) { return static_cast<uint8_t>(take_bytes(bytes, 1)[0]); }

}  // namespace

std::string_view take_bytes(std::string_view& bytes, uint64_t count) {
  if (count > bytes.size())
    throw ParquetEndsEarly(fmt::format("{} bytes wanted where {} are left", count, bytes.size()));
  const std::string_view taken = bytes.substr(0, count);
  bytes.remove_prefix(count);
  return taken;
}

uint64_t take_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const uint8_t byte = take_byte(bytes);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  throw damage("a number has more than 64 bits");
}

CompactReader::Type CompactReader::type_of(uint8_t bits) {
  if (bits > static_cast<uint8_t>(Type::kStruct)) throw damage("{} is no type of Thrift", bits);
  return static_cast<Type>(bits);
}

void CompactReader::expect(bool holds, const Field& field) {
  if (!holds)
    throw damage("field {} of a structure has type {}", field.id, static_cast<int>(field.type));
}

// The low nibble of the first byte is the type; the high nibble is the difference from the previous
// field's number, or 0 if the number follows.
bool CompactReader::next_field(Field& field) {
  const uint8_t head = take_byte(bytes_);
  field.type = type_of(head & 0x0f);
  if (field.type == Type::kStop) return false;
  const int64_t step = head >> 4;
  field.id = step != 0 ? field.id + step : from_zigzag(take_varint(bytes_));
  if (field.id < 0 || field.id > INT16_MAX) throw damage("a field has number {}", field.id);
  return true;
}

// Every element takes at least one byte.
int64_t CompactReader::checked_count(uint64_t count) const {
  if (count > bytes_.size())
    throw ParquetEndsEarly(
        fmt::format("a list of {} elements where {} bytes are left", count, bytes_.size()));
  return static_cast<int64_t>(count);
}

CompactReader::List CompactReader::begin_list(const Field& field) {
  expect(field.type == Type::kList || field.type == Type::kSet, field);
  const uint8_t head = take_byte(bytes_);
  const uint64_t count = (head >> 4) == 15 ? take_varint(bytes_) : head >> 4;
  return {checked_count(count), type_of(head & 0x0f)};
}

int64_t CompactReader::integer(const Field& field) {
  if (field.type == Type::kByte) return static_cast<int8_t>(take_byte(bytes_));
  expect(field.type == Type::kI16 || field.type == Type::kI32 || field.type == Type::kI64, field);
  return from_zigzag(take_varint(bytes_));
}

bool CompactReader::boolean(const Field& field) const {
  expect(field.type == Type::kTrue || field.type == Type::kFalse, field);
  return field.type == Type::kTrue;
}

std::string_view CompactReader::binary(const Field& field) {
  expect(field.type == Type::kBinary, field);
  const uint64_t length = take_varint(bytes_);
  return take_bytes(bytes_, length);
}

void CompactReader::skip_elements(Type type, int64_t count, int depth) {
  for (int64_t i = 0; i < count; ++i) {
    // A list element, unlike a field, takes a byte.
    if (type == Type::kTrue || type == Type::kFalse)
      take_bytes(bytes_, 1);
    else
      skip(type, depth);
  }
}

void CompactReader::skip(Type type, int depth) {
  if (depth > kMostDepth) throw damage("structures nested more than {} deep", kMostDepth);
  switch (type) {
    case Type::kStop:
      throw damage("a value without a type");
    case Type::kTrue:
    case Type::kFalse:
      return;
    case Type::kByte:
      take_bytes(bytes_, 1);
      return;
    case Type::kI16:
    case Type::kI32:
    case Type::kI64:
      take_varint(bytes_);
      return;
    case Type::kDouble:
      take_bytes(bytes_, 8);
      return;
    case Type::kBinary: {
      const uint64_t length = take_varint(bytes_);
      take_bytes(bytes_, length);
      return;
    }
    case Type::kList:
    case Type::kSet: {
      const List list = begin_list({.id = 0, .type = type});
      return skip_elements(list.type, list.count, depth + 1);
    }
    case Type::kMap: {
      const int64_t count = checked_count(take_varint(bytes_));
      const uint8_t types = count == 0 ? uint8_t{0} : take_byte(bytes_);
      for (int64_t i = 0; i < count; ++i) {
        skip_elements(type_of(types >> 4), 1, depth + 1);
        skip_elements(type_of(types & 0x0f), 1, depth + 1);
      }
      return;
    }
    case Type::kStruct:
      for (Field field; next_field(field);) skip(field.type, depth + 1);
      return;
  }
}

}  // namespace mpt
