// Header of a page, the unit of compression: a span of a column's values.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace mpt {

enum class ParquetEncoding : int {
  kPlain = 0,
  kPlainDictionary = 2,
  kRle = 3,
  kDeltaLength = 6,
  kDeltaStrings = 7,
  kRleDictionary = 8,
};

// Rejects pages and dictionaries with more bytes, compressed or not, or more values, and those of
// more than kLargePageBytes compressed more than kMostRatioOfLarge-fold.
inline constexpr int64_t kMostPageBytes = (int64_t{1} << 31) - 1;
inline constexpr int64_t kLargePageBytes = int64_t{1} << 28;
inline constexpr int64_t kMostRatioOfLarge = 64;
inline constexpr int64_t kMostPageValues = int64_t{1} << 24;

struct ParquetPage {
  enum class Kind { kData, kIndex, kDictionary, kDataV2 };

  Kind kind = Kind::kData;
  int64_t header_bytes = 0;
  int64_t packed_bytes = 0;  // after the header
  int64_t bytes = 0;         // decompressed
  int64_t values = 0;        // including nulls
  ParquetEncoding encoding = ParquetEncoding::kPlain;
  std::optional<uint32_t> checksum{};  // CRC-32 of the bytes after the header
  // Version 2 only: levels precede the values and are never compressed.
  int64_t repetition_bytes = 0;
  int64_t definition_bytes = 0;
  bool packed = true;
};

// Parses the header at the start of `bytes`. Throws ParquetEndsEarly if it extends past their end,
// and ParquetDamage.
ParquetPage read_parquet_page(std::string_view bytes);

}  // namespace mpt
