// Several token shards as one stream of tokens and, if indexed, of documents.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/file_system.h"
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
  // Concatenates the shards at `paths`. Every token read must be below vocab_size.
  TokenStream(const std::vector<std::string>& paths, int64_t vocab_size);

  [[nodiscard]] int64_t tokens() const { return first_token_.back(); }
  [[nodiscard]] const std::vector<TokenShard>& shards() const { return shards_; }
  // May cross shard boundaries. Throws Error naming the shard and position of a token outside the
  // vocabulary.
  void read(int64_t first, std::span<int32_t> out) const;

  // Opens the document index of every shard. Throws Error if one is missing; `what` names the
  // feature that needs it.
  void open_documents(std::string_view what);
  [[nodiscard]] int64_t documents() const { return first_document_.back(); }
  // Range of a document, which may span shards. Requires open_documents().
  [[nodiscard]] TokenRange document(int64_t number) const;
  // Start of a document; `number` == documents() gives tokens().
  [[nodiscard]] int64_t document_begin(int64_t number) const;
  // Number of documents that begin at or before `position`.
  [[nodiscard]] int64_t documents_until(int64_t position) const;

 private:
  int64_t vocab_size_;
  std::vector<TokenShard> shards_;
  std::vector<DocumentIndex> indices_;
  std::vector<int64_t> first_token_{0};     // per shard, then the total
  std::vector<int64_t> first_document_{0};  // per shard, then the total
};

}  // namespace mpt
