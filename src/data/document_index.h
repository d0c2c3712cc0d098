// Document index of a token shard: a small file next to the shard (`train_000000.idx` for
// `train_000000.bin`), written by `mpretrain tokenize`. Required for one document per row (`pack:
// false`).
//
//   8 bytes "MPTDOCS1" | uint64 documents n | uint64 tokens of the shard | n x uint64 first token,
//   little-endian
//
// Positions are relative to the start of the shard and strictly increasing. A document ends where
// the stream's next one begins, possibly in a later shard, so tokens before a shard's first
// position belong to the last document of the preceding shards. A shard in the middle of a long
// document may have n = 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/io/file_system.h"

namespace mpt {

std::string index_path_of(const std::string& shard_path);

class DocumentIndex {
 public:
  // Reads the file. Throws Error if it is missing, corrupt or belongs to a shard with a different
  // token count.
  DocumentIndex(const std::string& path, int64_t tokens_of_shard);

  [[nodiscard]] int64_t documents() const { return static_cast<int64_t>(starts_.size()); }
  [[nodiscard]] int64_t start(int64_t document) const {
    return starts_[static_cast<size_t>(document)];
  }
  // Start of a document; `number` == documents() gives tokens().
  [[nodiscard]] int64_t document_begin(int64_t number) const;
  // Number of documents that begin at or before `position`.
  [[nodiscard]] int64_t documents_until(int64_t position) const;

 private:
  std::vector<uint32_t> starts_;  // less than the shard's token count
};

// Writes the index of one shard.
void write_document_index(const std::string& path, std::span<const uint64_t> starts,
                          int64_t tokens_of_shard, FileSystem& fs = posix_file_system());

}  // namespace mpt
