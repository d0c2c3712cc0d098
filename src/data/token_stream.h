// Several token shards seen as one stream of tokens and, where they have indices, of documents.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/document_index.h"
#include "data/token_shard.h"

namespace mpt {

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
