// Iterates over the texts of one column of a Parquet file.
//
// Holds one page and one dictionary in memory, compressed and decompressed (limits: page.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/file_system.h"
#include "text/corpus/parquet/metadata.h"
#include "text/corpus/parquet/page.h"
#include "text/corpus/parquet/values.h"

namespace mpt {

class ParquetTextColumn {
 public:
  // Throws Error naming the file if it is not Parquet, or the column is missing or not text.
  ParquetTextColumn(const std::string& path, const std::string& name);

  // Returns the next row's text, empty for null and valid until the next call; false at the end.
  // Throws Error naming file and row group.
  bool next(std::string_view& text);
  // Row of the last text returned, from 1.
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
  size_t chunk_ = 0;  // after the one being read
  int64_t at_ = 0;    // file offset of the next page
  int64_t end_ = 0;   // end of the chunk
  int64_t left_in_chunk_ = 0;
  int64_t left_in_page_ = 0;
  int64_t row_ = 0;
  std::string header_, packed_, page_, packed_dictionary_, dictionary_bytes_;
  std::vector<std::string_view> dictionary_;
  HybridNumbers levels_;  // 0: null
  std::unique_ptr<PageStrings> strings_;
};

}  // namespace mpt
