// Several token shards as one stream of tokens and, if they have indices, of documents.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/file_system.h"
#include "data/token_shard.h"

namespace mpt {

// Document index of a token shard: a small file next to the shard, `train_000000.idx` for
// `train_000000.bin`, written by `mpretrain tokenize`. Needed for one document per row (`pack:
// false`).
//
//   8 bytes "MPTDOCS1" | uint64 documents n | uint64 tokens of the shard | n x uint64 first token,
//   little-endian
//
// Positions are relative to the start of the shard and strictly increasing. A document ends where
// the next one of the stream begins, possibly in a later shard, so tokens before a shard's first
// position belong to the last document of the previous shards. A shard in the middle of a long
// document may have n = 0.

std::string index_path_of(const std::string& shard_path);

class DocumentIndex {
 public:
  // Reads the file. Throws Error if it is missing, damaged or for a shard with another number of
  // tokens.
  DocumentIndex(const std::string& path, int64_t tokens_of_shard);

  [[nodiscard]] int64_t documents() const { return static_cast<int64_t>(starts_.size()); }
  [[nodiscard]] int64_t start(int64_t document) const {
    return starts_[static_cast<size_t>(document)];
  }
  // Where a document begins; tokens() for documents().
  [[nodiscard]] int64_t document_begin(int64_t number) const;
  // Number of documents that begin at `position` or before.
  [[nodiscard]] int64_t documents_until(int64_t position) const;

 private:
  std::vector<uint32_t> starts_;  // below the tokens of a shard
};

// Writes the index of one shard.
void write_document_index(const std::string& path, std::span<const uint64_t> starts,
                          int64_t tokens_of_shard, FileSystem& fs = posix_file_system());

// Half-open range of positions in the stream.
struct TokenRange {
  int64_t begin;
  int64_t end;
};

class TokenStream {
 public:
  // Concatenates the shards at `paths`. Every token read must be below vocab_size.
  TokenStream(const std::vector<std::string>& paths, int64_t vocab_size);

  [[nodiscard]] int64_t tokens() const { return first_token_.back(); }
  [[nodiscard]] const std::vector<TokenShard>& shards() const { return shards_; }
  // May cross shard boundaries. Throws Error naming shard and position of a token outside the
  // vocabulary.
  void read(int64_t first, std::span<int32_t> out) const;

  // Opens the document index of every shard. Throws Error if one is missing, which `what` needs.
  void open_documents(std::string_view what);
  [[nodiscard]] int64_t documents() const { return first_document_.back(); }
  // The range of a document, which may span shards. Call open_documents() first.
  [[nodiscard]] TokenRange document(int64_t number) const;
  // Where a document begins; tokens() for documents().
  [[nodiscard]] int64_t document_begin(int64_t number) const;
  // Number of documents that begin at a position of the stream or before.
  [[nodiscard]] int64_t documents_until(int64_t position) const;

 private:
  int64_t vocab_size_;
  std::vector<TokenShard> shards_;
  std::vector<DocumentIndex> indices_;
  std::vector<int64_t> first_token_{0};     // of each shard, then the total
  std::vector<int64_t> first_document_{0};  // likewise
};

}  // namespace mpt
