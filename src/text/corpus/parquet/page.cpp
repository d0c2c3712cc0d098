#include "text/corpus/parquet/page.h"

#include <algorithm>

#include "core/check.h"
#include "text/corpus/parquet/compact_protocol.h"

namespace mpt {
namespace {

using Field = CompactReader::Field;

int64_t checked(int64_t value, int64_t most, std::string_view what) {
  if (value < 0 || value > most)
    throw damage("a page with {} {}; at most {} are accepted", value, what, most);
  return value;
}

ParquetEncoding encoding_of(int64_t number) {
  switch (number) {
    case 0:
    case 2:
    case 3:
    case 6:
    case 7:
    case 8:
      return static_cast<ParquetEncoding>(number);
    default:
      throw error(
          "a page has encoding {}; expected PLAIN (0), RLE_DICTIONARY (8, 2), "
          "DELTA_LENGTH_BYTE_ARRAY (6) or DELTA_BYTE_ARRAY (7)",
          number);
  }
}

// For version-1 data pages and dictionaries, whose fields are the same as far as they are read.
void read_page_v1(CompactReader& reader, const Field& field, ParquetPage& page) {
  reader.read_struct(field, [&](const Field& part) {
    switch (part.id) {
      case 1:
        page.values = reader.integer(part);
        return true;
      case 2:
        page.encoding = encoding_of(reader.integer(part));
        return true;
      case 3:
        if (page.kind != ParquetPage::Kind::kData) return false;
        if (const int64_t levels = reader.integer(part);
            levels != static_cast<int64_t>(ParquetEncoding::kRle))
          throw error("a page's levels have encoding {}; expected RLE (3)", levels);
        return true;
      default:
        return false;
    }
  });
}

void read_page_v2(CompactReader& reader, const Field& field, ParquetPage& page) {
  reader.read_struct(field, [&](const Field& part) {
    switch (part.id) {
      case 1:
        page.values = reader.integer(part);
        return true;
      case 4:
        page.encoding = encoding_of(reader.integer(part));
        return true;
      case 5:
        page.definition_bytes = reader.integer(part);
        return true;
      case 6:
        page.repetition_bytes = reader.integer(part);
        return true;
      case 7:
        page.packed = reader.boolean(part);
        return true;
      default:
        return false;
    }
  });
}

}  // namespace

ParquetPage read_parquet_page(std::string_view bytes) {
  CompactReader reader(bytes);
  ParquetPage page;
  bool described = false;
  reader.read_struct([&](const Field& field) {
    switch (field.id) {
      case 1:
        page.kind = static_cast<ParquetPage::Kind>(checked(reader.integer(field), 3, "as kind"));
        return true;
      case 2:
        page.bytes = reader.integer(field);
        return true;
      case 3:
        page.packed_bytes = reader.integer(field);
        return true;
      case 4:
        page.checksum = static_cast<uint32_t>(reader.integer(field));
        return true;
      case 5:
      case 7:
        read_page_v1(reader, field, page);
        return described = true;
      case 8:
        read_page_v2(reader, field, page);
        return described = true;
      default:
        return false;
    }
  });
  page.header_bytes = std::ssize(bytes) - std::ssize(reader.rest());
  checked(page.packed_bytes, kMostPageBytes, "packed bytes");
  checked(
      page.bytes,
      std::min(kMostPageBytes, std::max(kLargePageBytes, kMostRatioOfLarge * page.packed_bytes)),
      "bytes");
  checked(page.values, kMostPageValues, "values");
  checked(page.repetition_bytes, page.bytes, "bytes of levels");
  checked(page.definition_bytes, page.bytes - page.repetition_bytes, "bytes of levels");
  if (!described && page.kind != ParquetPage::Kind::kIndex)
    throw damage("a page without its header");
  return page;
}

}  // namespace mpt
