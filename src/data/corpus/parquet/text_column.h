// The texts of one column of a Parquet file, one after the other.
//
// Memory holds one page and one dictionary, packed and unpacked (page.h has their limits).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/file_system.h"
#include "data/corpus/parquet/metadata.h"
#include "data/corpus/parquet/page.h"
#include "data/corpus/parquet/values.h"

namespace mpt {

class ParquetTextColumn {
 public:
  // Throws Error naming the file if it is none, or the column is missing or holds no text.
  ParquetTextColumn(const std::string& path, const std::string& name);

  // The next row's text, empty for null; it lives until the next call. False at the end. Throws
  // Error naming file and row group.
  bool next(std::string_view& text);
  // Of the text returned last, from 1.
  [[nodiscard]] int64_t row() const { return row_; }
  [[nodiscard]] int64_t bytes_read() const;

 private:
  void begin_chunk();
  void load_page();
  ParquetPage read_header();
  void load_dictionary(const ParquetPage& page);
  void load_data(const ParquetPage& page);
  std::string_view read_packed(const ParquetPage& page, std::string& target);
  [[nodiscard]] ParquetCodec codec() const { return column_.chunks[chunk_ - 1].codec; }

  std::string path_;
  std::unique_ptr<ReadableFile> file_;
  ParquetColumn column_;
  size_t chunk_ = 0;  // behind the one being read
  int64_t at_ = 0;    // the next page's place in the file
  int64_t end_ = 0;   // of the chunk
  int64_t left_in_chunk_ = 0;
  int64_t left_in_page_ = 0;
  int64_t row_ = 0;
  std::string header_, packed_, page_, packed_dictionary_, dictionary_bytes_;
  std::vector<std::string_view> dictionary_;
  HybridNumbers levels_;  // 0: null
  std::unique_ptr<PageStrings> strings_;
};

}  // namespace mpt
