// Decoders for the numbers and strings in a Parquet page.
//
// Follows the format's specification (Encodings.md of Apache Parquet). Every read stays within the
// bytes given and throws ParquetDamage if they end early.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/corpus/parquet/page.h"

namespace mpt {

// Numbers of `width` bits (0 to 32) in runs, each repeated or bit-packed in groups of eight
// ("RLE/bit-packed hybrid").
class HybridNumbers {
 public:
  HybridNumbers() = default;  // no numbers
  HybridNumbers(std::string_view bytes, int64_t width);
  uint32_t next();

 private:
  void begin_run();

  std::string_view bytes_;
  int width_ = 0;
  int64_t left_ = 0;  // numbers of the run not yet returned
  bool packed_ = false;
  uint32_t repeated_ = 0;
  uint64_t bits_ = 0;  // unpacked bytes, next number lowest
  int bit_count_ = 0;
};

// Consumes differences in packed blocks (DELTA_BINARY_PACKED) from `bytes`. More than `most`
// numbers are damage.
std::vector<int32_t> take_delta_numbers(std::string_view& bytes, int64_t most);

// The strings of a page. The result of next() is valid until the next call.
class PageStrings {
 public:
  virtual ~PageStrings() = default;
  virtual std::string_view next() = 0;
};

// `bytes`, and the dictionary if the encoding needs one, must outlive the result.
std::unique_ptr<PageStrings> make_page_strings(ParquetEncoding encoding, std::string_view bytes,
                                               int64_t most_values,
                                               const std::vector<std::string_view>& dictionary);

// Consumes a length-prefixed string from `bytes`.
std::string_view take_plain_string(std::string_view& bytes);

}  // namespace mpt
