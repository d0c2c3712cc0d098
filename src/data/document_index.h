// Where the documents of a token shard begin: a small file beside each shard, `train_000000.idx` for
// `train_000000.bin`, written by `mpretrain tokenize` and needed for one document a row (`pack: false`).
//
//   8 bytes "MPTDOCS1" | uint64 documents n | uint64 tokens of the shard | n x uint64 first token,
//   little-endian
//
// Positions count from the start of the shard and increase strictly. A document may run on into the following
// shards: it ends where the next one of the stream begins, so tokens before a shard's first position belong
// to the last document of the shards before it. A shard in the middle of a long document may have n = 0.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/file_system.h"
#include "data/mapped_file.h"

namespace mpt {

std::string index_path_of(const std::string& shard_path);

class DocumentIndex {
 public:
  // Throws Error if the file is missing, damaged or belongs to a shard with another number of tokens.
  DocumentIndex(const std::string& path, int64_t tokens_of_shard);

  [[nodiscard]] int64_t documents() const { return static_cast<int64_t>(starts_.size()); }
  [[nodiscard]] int64_t start(int64_t document) const {
    return static_cast<int64_t>(starts_[static_cast<size_t>(document)]);
  }

 private:
  MappedFile file_;
  std::span<const uint64_t> starts_;
};

// Writes the index of one shard.
void write_document_index(const std::string& path, std::span<const uint64_t> starts, int64_t tokens_of_shard,
                          FileSystem& fs = posix_file_system());

}  // namespace mpt
