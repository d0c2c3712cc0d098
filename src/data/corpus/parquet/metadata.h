// What a Parquet file's footer says of one column of text.
//
// After the format's specification (parquet.thrift of Apache Parquet). Whatever the reader cannot
// read is refused by name: encrypted files, nested, repeated and other than text columns, codecs
// that Parquet knows and this program does not, columns in other files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/io/file_system.h"

namespace mpt {

enum class ParquetCodec : int { kNone = 0, kSnappy = 1, kGzip = 2, kZstd = 6 };

// The column's pages in one row group.
struct ParquetChunk {
  int64_t begin = 0;  // bytes of the file
  int64_t end = 0;
  int64_t values = 0;  // nulls included
  ParquetCodec codec = ParquetCodec::kNone;
};

struct ParquetColumn {
  bool optional = false;    // values may be null
  bool only_nulls = false;  // all are, whatever the pages hold: Arrow's type null
  std::vector<ParquetChunk> chunks{};
};

// Whether a file begins and ends as Parquet files do.
bool is_parquet_file(const std::string& path);

// Reads the footer and finds the outermost column `name`. Throws Error naming the file.
ParquetColumn read_parquet_column(const ReadableFile& file, const std::string& path,
                                  const std::string& name);

}  // namespace mpt
