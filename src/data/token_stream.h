// Several token shards seen as one stream of tokens and, where they have indices, of documents.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/io/file_system.h"
#include "data/token_shard.h"

namespace mpt {

// Where the documents of a token shard begin: a small file beside each shard, `train_000000.idx` for
// `train_000000.bin`, written by `mpretrain tokenize` and needed for one document a row (`pack: false`).
//
//   8 bytes "MPTDOCS1" | uint64 documents n | uint64 tokens of the shard | n x uint64 first token,
//   little-endian
//
// Positions count from the start of the shard and increase strictly. A document may run on into the following
// shards: it ends where the next one of the stream begins, so tokens before a shard's first position belong
// to the last document of the shards before it. A shard in the middle of a long document may have n = 0.

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

// Half-open range of positions in the stream.
struct TokenRange {
  int64_t begin;
  int64_t end;
};

class TokenStream {
 public:
  // The shards of these paths one behind the other. Every token read must be below vocab_size.
  TokenStream(const std::vector<std::string>& paths, int64_t vocab_size);

  [[nodiscard]] int64_t tokens() const { return first_token_.back(); }
  // Across shard borders. Throws Error naming shard and position for a token outside the vocabulary.
  void read(int64_t first, std::span<int32_t> out) const;

  // Opens the document index of every shard; throws Error if one is missing.
  void open_documents();
  [[nodiscard]] int64_t documents() const { return first_document_.back(); }
  // Where a document stands; it may run across shards. open_documents() comes first.
  [[nodiscard]] TokenRange document(int64_t number) const;

 private:
  [[nodiscard]] int64_t document_begin(int64_t number) const;

  int64_t vocab_size_;
  std::vector<TokenShard> shards_;
  std::vector<DocumentIndex> indices_;
  std::vector<int64_t> first_token_{0};     // of each shard; behind the last, the total
  std::vector<int64_t> first_document_{0};  // likewise
};

}  // namespace mpt
