// Reader for Thrift's compact protocol, the encoding of Parquet's footer and page headers.
//
// Follows the protocol's specification (thrift-compact-protocol.md of Apache Thrift). Copies and
// allocates nothing: values are views of the input bytes, and counts are checked against the bytes
// left. libthrift is not used because it would pull in OpenSSL, Qt and Boost's headers for these
// hundred lines.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/check.h"

namespace mpt {

// The bytes violate the format. Higher-level readers add the file's name.
class ParquetDamage : public Error {
 public:
  using Error::Error;
};

template <class... Args>
[[nodiscard]] ParquetDamage damage(fmt::format_string<Args...> format, Args&&... args) {
  return ParquetDamage(fmt::format(format, std::forward<Args>(args)...));
}

// Damage, or a structure that extends past the bytes given.
class ParquetEndsEarly : public ParquetDamage {
 public:
  using ParquetDamage::ParquetDamage;
};

// Consumes a varint from `bytes`: 7 bits per byte, lowest first.
uint64_t take_varint(std::string_view& bytes);
// 0, -1, 1, -2 … for 0, 1, 2, 3 …
constexpr int64_t from_zigzag(uint64_t value) {
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}
// Consumes and returns the first `count` bytes.
std::string_view take_bytes(std::string_view& bytes, uint64_t count);

class CompactReader {
 public:
  enum class Type : uint8_t {
    kStop,
    kTrue,
    kFalse,
    kByte,
    kI16,
    kI32,
    kI64,
    kDouble,
    kBinary,
    kList,
    kSet,
    kMap,
    kStruct,
  };
  struct Field {
    int64_t id = 0;
    Type type = Type::kStop;
  };

  explicit CompactReader(std::string_view bytes) : bytes_(bytes) {}

  // Calls `take(field)` for every field of a structure; it reads the value and returns true, or
  // returns false to have the field skipped.
  template <class Take>
  void read_struct(Take&& take) {
    for (Field field; next_field(field);)
      if (!take(field)) skip(field.type, 0);
  }
  // Calls `read()`, which must read a structure, for every element.
  template <class Read>
  void read_structs(const Field& field, Read&& read) {
    const List list = begin_list(field);
    if (list.count > 0) expect(list.type == Type::kStruct, field);
    for (int64_t i = 0; i < list.count; ++i) read();
  }
  // Value of the field just passed to `take`. The wrong type is damage.
  int64_t integer(const Field& field);
  bool boolean(const Field& field) const;
  std::string_view binary(const Field& field);
  template <class Take>
  void read_struct(const Field& field, Take&& take) {
    expect(field.type == Type::kStruct, field);
    read_struct(take);
  }

  [[nodiscard]] std::string_view rest() const { return bytes_; }

 private:
  struct List {
    int64_t count;
    Type type;
  };
  bool next_field(Field& field);
  List begin_list(const Field& field);
  void skip(Type type, int depth);
  void skip_elements(Type type, int64_t count, int depth);
  [[nodiscard]] int64_t checked_count(uint64_t count) const;
  static void expect(bool holds, const Field& field);
  static Type type_of(uint8_t bits);

  std::string_view bytes_;
};

}  // namespace mpt
