#include "text/corpus/parquet/metadata.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include <fmt/ranges.h>

#include "core/check.h"
#include "text/corpus/parquet/compact_protocol.h"

namespace mpt {
namespace {

using Field = CompactReader::Field;

static_assert(std::endian::native == std::endian::little, "Parquet is little-endian");

constexpr std::string_view kParquetMagic = "PAR1";
constexpr std::string_view kEncryptedMagic = "PARE";
constexpr int64_t kTailBytes = 8;  // footer length and magic
constexpr int64_t kMostFooterBytes = int64_t{64} << 20;
constexpr size_t kMostColumns = 100'000;  // and groups of columns
// Rejects more rows than this plus this many per byte of the file: their number by itself would
// take time out of proportion.
constexpr int64_t kAnyRows = int64_t{1} << 20;
constexpr int64_t kRowsPerByte = 64;

std::string read_text(const ReadableFile& file, int64_t offset, int64_t count) {
  std::string text(static_cast<size_t>(count), '\0');
  file.read(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

std::string footer_of(const ReadableFile& file, const std::string& path) {
  const int64_t size = file.size(), least = std::ssize(kParquetMagic) + kTailBytes;
  const std::string begin = read_text(file, 0, std::min<int64_t>(size, std::ssize(kParquetMagic)));
  if (begin == kEncryptedMagic)
    throw error("{}: is an encrypted Parquet file, which cannot be read", path);
  if (begin != kParquetMagic)
    throw error("{}: is not a Parquet file, which begins with {}", path, kParquetMagic);
  const std::string tail = size < least ? "" : read_text(file, size - kTailBytes, kTailBytes);
  if (tail.ends_with(kEncryptedMagic))
    throw error("{}: is an encrypted Parquet file, which cannot be read", path);
  if (!tail.ends_with(kParquetMagic))
    throw error("{}: is truncated: a Parquet file ends with {}", path, kParquetMagic);
  uint32_t length;
  std::memcpy(&length, tail.data(), sizeof length);
  if (length > size - least || length > kMostFooterBytes)
    throw error("{}: its footer claims {} bytes; the file has {}, and at most {} are accepted",
                path, length, size, kMostFooterBytes);
  return read_text(file, size - kTailBytes - length, length);
}

// Node of the schema, in which a group is followed by its members.
struct Element {
  std::string_view name{};
  int64_t type = -1;  // for a column; -1: the element is a group
  int64_t repetition = 0;
  int64_t children = 0;
  int64_t converted = -1;   // meaning of the values; -1: unspecified
  bool only_nulls = false;  // Arrow's null type
};

// The logical type is a union whose member UNKNOWN means that all values are null.
bool is_unknown_type(CompactReader& reader, const Field& field) {
  constexpr int kUnknownType = 11;
  bool found = false;
  reader.read_struct(field, [&](const Field& member) {
    found |= member.id == kUnknownType;
    return false;
  });
  return found;
}

Element read_element(CompactReader& reader) {
  Element element;
  reader.read_struct([&](const Field& field) {
    switch (field.id) {
      case 1:
        element.type = reader.integer(field);
        return true;
      case 3:
        element.repetition = reader.integer(field);
        return true;
      case 4:
        element.name = reader.binary(field);
        return true;
      case 5:
        element.children = reader.integer(field);
        return true;
      case 6:
        element.converted = reader.integer(field);
        return true;
      case 10:
        element.only_nulls = is_unknown_type(reader, field);
        return true;
      default:
        return false;
    }
  });
  return element;
}

struct Leaf {
  Element element;
  int64_t number;  // among the columns of a row group
};

// Top-level columns and groups. A group's number is that of its first column.
std::vector<Leaf> outermost(const std::vector<Element>& schema) {
  if (schema.empty()) throw damage("the schema is empty");
  std::vector<Leaf> found;
  int64_t leaves = 0;
  size_t at = 1;
  for (int64_t i = 0; i < schema[0].children; ++i) {
    if (at >= schema.size()) throw damage("the schema ends within a group");
    found.push_back({schema[at], leaves});
    for (int64_t open = 1; open > 0; ++at, --open) {
      if (at >= schema.size()) throw damage("the schema ends within a group");
      const int64_t children = schema[at].children;
      if (children < 0 || children > std::ssize(schema)) throw damage("a group of {}", children);
      open += children;
      leaves += children == 0 && schema[at].type >= 0 ? 1 : 0;
    }
  }
  return found;
}

// Finds the text column. Rejects anything else by that name.
Leaf text_column(const std::vector<Element>& schema, const std::string& name) {
  constexpr int64_t kByteArray = 6;
  constexpr int64_t kRepeated = 2;
  constexpr std::array<int64_t, 4> kTexts{-1, 0, 4, 19};  // unspecified, UTF-8, enumerations, JSON
  const std::vector<Leaf> columns = outermost(schema);
  const auto found = std::find_if(columns.begin(), columns.end(),
                                  [&](const Leaf& leaf) { return leaf.element.name == name; });
  if (found == columns.end()) {
    std::vector<std::string_view> names;
    for (const Leaf& leaf : columns) names.push_back(leaf.element.name);
    if (names.size() > 50) names.resize(50);
    throw error("no column '{}'; the file has: {}; name the column of the text with --text-field",
                name, fmt::join(names, ", "));
  }
  const Element& element = found->element;
  if (element.children > 0) throw error("column '{}' is nested; expected one of strings", name);
  if (element.repetition == kRepeated)
    throw error("column '{}' is a list; expected one of strings", name);
  if (element.only_nulls) return *found;
  if (element.type != kByteArray ||
      std::find(kTexts.begin(), kTexts.end(), element.converted) == kTexts.end())
    throw error("column '{}' holds no text (type {}, converted type {}); expected strings", name,
                element.type, element.converted);
  return *found;
}

ParquetCodec codec_of(int64_t number) {
  constexpr std::array<std::string_view, 8> kNames{"none",   "snappy", "gzip", "LZO",
                                                   "brotli", "LZ4",    "zstd", "LZ4_RAW"};
  switch (number) {
    case 0:
    case 1:
    case 2:
    case 6:
      return static_cast<ParquetCodec>(number);
    default:
      throw error("is packed by codec {}; expected none, snappy, gzip or zstd",
                  number > 0 && number < std::ssize(kNames) ? kNames[static_cast<size_t>(number)]
                                                            : std::to_string(number));
  }
}

struct ColumnMetadata {
  int64_t codec = 0;
  int64_t values = 0;
  int64_t packed_bytes = 0;
  int64_t data_page = 0;
  int64_t dictionary_page = 0;
};

void read_column_metadata(CompactReader& reader, const Field& field, ColumnMetadata& column) {
  reader.read_struct(field, [&](const Field& part) {
    switch (part.id) {
      case 4:
        column.codec = reader.integer(part);
        return true;
      case 5:
        column.values = reader.integer(part);
        return true;
      case 7:
        column.packed_bytes = reader.integer(part);
        return true;
      case 9:
        column.data_page = reader.integer(part);
        return true;
      case 11:
        column.dictionary_page = reader.integer(part);
        return true;
      default:
        return false;
    }
  });
}

ColumnMetadata read_column(CompactReader& reader) {
  ColumnMetadata column;
  reader.read_struct([&](const Field& field) {
    if (field.id == 1) throw error("its columns lie in other files, which are not read");
    if (field.id == 8) throw error("its text is encrypted and cannot be read");
    if (field.id != 3) return false;
    read_column_metadata(reader, field, column);
    return true;
  });
  return column;
}

ParquetChunk chunk_of(const ColumnMetadata& column, int64_t data_end) {
  const bool dictionary = column.dictionary_page > 0 && column.dictionary_page < column.data_page;
  ParquetChunk chunk{.begin = dictionary ? column.dictionary_page : column.data_page,
                     .values = column.values,
                     .codec = codec_of(column.codec)};
  if (chunk.begin < std::ssize(kParquetMagic) || chunk.begin > data_end ||
      column.packed_bytes < 0 || column.packed_bytes > data_end - chunk.begin)
    throw damage("a row group's text is said to lie in {} bytes at {}; the columns end at {}",
                 column.packed_bytes, chunk.begin, data_end);
  chunk.end = chunk.begin + column.packed_bytes;
  return chunk;
}

// Reads a row group and keeps its chunk of column `leaf`. A group without rows may have none.
void read_row_group(CompactReader& reader, int64_t leaf, int64_t data_end, ParquetColumn& kept) {
  std::optional<ColumnMetadata> found;
  int64_t number = 0, rows = 0;
  reader.read_struct([&](const Field& field) {
    if (field.id == 3) return rows = reader.integer(field), true;
    if (field.id != 1) return false;
    reader.read_structs(field, [&] {
      const ColumnMetadata column = number == leaf ? read_column(reader) : ColumnMetadata{};
      if (number == leaf)
        found = column;
      else
        reader.read_struct([](const Field&) { return false; });
      ++number;
    });
    return true;
  });
  if (!found) throw damage("a row group has {} columns", number);
  if (found->values != rows || rows < 0)
    throw damage("a row group of {} rows has {} texts", rows, found->values);
  if (rows > 0) kept.chunks.push_back(chunk_of(*found, data_end));
}

ParquetColumn column_of(std::string_view footer, const std::string& name, int64_t file_bytes) {
  CompactReader reader(footer);
  const int64_t data_end = file_bytes - kTailBytes - std::ssize(footer);
  std::vector<Element> schema;
  ParquetColumn column;
  std::optional<Leaf> leaf;
  reader.read_struct([&](const Field& field) {
    switch (field.id) {
      case 2:
        reader.read_structs(field, [&] {
          schema.push_back(read_element(reader));
          if (schema.size() > kMostColumns) throw error("more than {} columns", kMostColumns);
        });
        if (leaf) throw damage("there is a second schema");
        leaf = text_column(schema, name);
        return true;
      case 4:
        if (!leaf) throw damage("the schema does not come first");
        reader.read_structs(field, [&] { read_row_group(reader, leaf->number, data_end, column); });
        return true;
      case 8:
        throw error("is encrypted and cannot be read");
      default:
        return false;
    }
  });
  if (!leaf) throw damage("there is no schema");
  column.optional = leaf->element.repetition == 1;
  column.only_nulls = leaf->element.only_nulls;
  return column;
}

void check_chunks(const ParquetColumn& column, int64_t file_bytes) {
  const int64_t most = kAnyRows + kRowsPerByte * file_bytes;
  int64_t rows = 0, bytes = 0;
  for (const ParquetChunk& chunk : column.chunks) {
    bytes += chunk.end - chunk.begin;
    if (bytes > file_bytes) throw damage("row groups overlap");
    if (chunk.values > most - rows)
      throw error("claims more than {} rows in {} bytes", most, file_bytes);
    rows += chunk.values;
  }
}

}  // namespace

bool is_parquet_file(const std::string& path) {
  const auto file = posix_file_system().open_read(path);
  const int64_t size = file->size();
  return size >= std::ssize(kParquetMagic) + kTailBytes &&
         read_text(*file, 0, std::ssize(kParquetMagic)) == kParquetMagic &&
         read_text(*file, size - std::ssize(kParquetMagic), std::ssize(kParquetMagic)) ==
             kParquetMagic;
}

ParquetColumn read_parquet_column(const ReadableFile& file, const std::string& path,
                                  const std::string& name) {
  const std::string footer = footer_of(file, path);
  try {
    ParquetColumn column = column_of(footer, name, file.size());
    check_chunks(column, file.size());
    return column;
  } catch (const ParquetDamage& found) {
    throw error("{}: the footer is damaged: {}", path, found.what());
  } catch (const Error& found) {
    throw error("{}: {}", path, found.what());
  }
}

}  // namespace mpt
