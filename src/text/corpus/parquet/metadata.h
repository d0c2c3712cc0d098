// Describes one text column, from a Parquet file's footer.
//
// Follows the format's specification (parquet.thrift of Apache Parquet). Rejects by name whatever
// the reader cannot read: encrypted files, nested, repeated and non-text columns, codecs that
// Parquet defines but this program lacks, columns in other files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/io/file_system.h"

namespace mpt {

enum class ParquetCodec : int { kNone = 0, kSnappy = 1, kGzip = 2, kZstd = 6 };

// A column's pages in one row group.
struct ParquetChunk {
  int64_t begin = 0;  // byte offset in the file
  int64_t end = 0;
  int64_t values = 0;  // including nulls
  ParquetCodec codec = ParquetCodec::kNone;
};

struct ParquetColumn {
  bool optional = false;    // values may be null
  bool only_nulls = false;  // all are, whatever the pages hold: Arrow's null type
  std::vector<ParquetChunk> chunks{};
};

// Whether a file has Parquet's magic at both ends.
bool is_parquet_file(const std::string& path);

// Reads the footer and finds the top-level column `name`. Throws Error naming the file.
ParquetColumn read_parquet_column(const ReadableFile& file, const std::string& path,
                                  const std::string& name);

}  // namespace mpt
