// The header of a page, which is a stretch of a column's values packed together.
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

// Pages and dictionaries with more bytes, packed or unpacked, or more values are refused, and those
// of more than kLargePageBytes if they are packed more than kMostRatioOfLarge-fold.
inline constexpr int64_t kMostPageBytes = (int64_t{1} << 31) - 1;
inline constexpr int64_t kLargePageBytes = int64_t{1} << 28;
inline constexpr int64_t kMostRatioOfLarge = 64;
inline constexpr int64_t kMostPageValues = int64_t{1} << 24;

struct ParquetPage {
  enum class Kind { kData, kIndex, kDictionary, kDataV2 };

  Kind kind = Kind::kData;
  int64_t header_bytes = 0;
  int64_t packed_bytes = 0;  // behind the header
  int64_t bytes = 0;         // unpacked
  int64_t values = 0;        // nulls included
  ParquetEncoding encoding = ParquetEncoding::kPlain;
  std::optional<uint32_t> checksum{};  // CRC-32 of the bytes behind the header
  // Version 2 alone: levels lie before the values and are never packed.
  int64_t repetition_bytes = 0;
  int64_t definition_bytes = 0;
  bool packed = true;
};

// The header at the beginning of `bytes`. Throws ParquetEndsEarly if it goes on behind them, and
// ParquetDamage.
ParquetPage read_parquet_page(std::string_view bytes);

}  // namespace mpt
