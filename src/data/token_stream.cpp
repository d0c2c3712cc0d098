#include "data/token_stream.h"

#include <algorithm>
#include <array>

#include "core/check.h"
#include "core/io/file_system.h"
#include "core/io/output_file.h"
#include "data/document_index.h"

namespace mpt {
namespace {

// Finds the shard containing an item: the last one whose first item is at or before it, which skips
// empty shards.
size_t shard_of(const std::vector<int64_t>& firsts, int64_t item) {
  return static_cast<size_t>(std::upper_bound(firsts.begin(), firsts.end(), item) -
                             firsts.begin()) -
         1;
}

}  // namespace

TokenStream::TokenStream(const std::vector<std::string>& paths, int64_t vocab_size)
    : vocab_size_(vocab_size) {
  check(vocab_size > 0 && vocab_size <= INT32_MAX, "vocab_size {} is out of range", vocab_size);
  for (const std::string& path : paths) {
    shards_.emplace_back(path);
    first_token_.push_back(first_token_.back() + shards_.back().tokens());
  }
}

void TokenStream::read(int64_t first, std::span<int32_t> out) const {
  check(first >= 0 && first + std::ssize(out) <= tokens(), "cannot read {} tokens at {} of {}",
        out.size(), first, tokens());
  for (size_t shard = shard_of(first_token_, first); !out.empty(); ++shard) {
    const int64_t within = first - first_token_[shard];
    const int64_t count = std::min<int64_t>(std::ssize(out), shards_[shard].tokens() - within);
    shards_[shard].read(within, out.first(static_cast<size_t>(count)), vocab_size_);
    first += count;
    out = out.subspan(static_cast<size_t>(count));
  }
}

void TokenStream::open_documents(std::string_view what) {
  check(indices_.empty(), "the document indices are already open");
  for (const TokenShard& shard : shards_) {
    const std::string path = index_path_of(shard.path());
    if (!has_optional_file(posix_file_system(), path))
      throw error(
          "{}: no such document index; {} needs it, and `mpretrain tokenize` writes it next to {}",
          path, what, shard.path());
    indices_.emplace_back(path, shard.tokens());
    first_document_.push_back(first_document_.back() + indices_.back().documents());
  }
}

int64_t TokenStream::document_begin(int64_t number) const {
  if (number == documents()) return tokens();
  const size_t shard = shard_of(first_document_, number);
  return first_token_[shard] + indices_[shard].start(number - first_document_[shard]);
}

TokenRange TokenStream::document(int64_t number) const {
  check(number >= 0 && number < documents(), "document {} is outside the {} documents", number,
        documents());
  return {document_begin(number), document_begin(number + 1)};
}

int64_t TokenStream::documents_until(int64_t position) const {
  check(position >= 0 && position < tokens(), "position {} is outside a stream of {} tokens",
        position, tokens());
  const size_t shard = shard_of(first_token_, position);
  return first_document_[shard] + indices_[shard].documents_until(position - first_token_[shard]);
}

}  // namespace mpt
