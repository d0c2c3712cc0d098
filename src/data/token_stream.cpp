#include "data/token_stream.h"

#include <algorithm>
#include <filesystem>

#include "core/check.h"

namespace mpt {
namespace {

// The shard that holds an item: the last whose first item is not behind it (empty shards are passed over).
size_t shard_of(const std::vector<int64_t>& firsts, int64_t item) {
  return static_cast<size_t>(std::upper_bound(firsts.begin(), firsts.end(), item) - firsts.begin()) - 1;
}

}  // namespace

TokenStream::TokenStream(const std::vector<std::string>& paths, int64_t vocab_size)
    : vocab_size_(vocab_size) {
  check(vocab_size > 0 && vocab_size <= INT32_MAX, "vocab_size {}", vocab_size);
  for (const std::string& path : paths) {
    shards_.emplace_back(path);
    first_token_.push_back(first_token_.back() + shards_.back().tokens());
  }
}

void TokenStream::read(int64_t first, std::span<int32_t> out) const {
  check(first >= 0 && first + std::ssize(out) <= tokens(), "reading {} tokens at {} of {}", out.size(), first,
        tokens());
  for (size_t shard = shard_of(first_token_, first); !out.empty(); ++shard) {
    const int64_t within = first - first_token_[shard];
    const int64_t count = std::min<int64_t>(std::ssize(out), shards_[shard].tokens() - within);
    shards_[shard].read(within, out.first(static_cast<size_t>(count)), vocab_size_);
    first += count;
    out = out.subspan(static_cast<size_t>(count));
  }
}

void TokenStream::open_documents() {
  check(indices_.empty(), "the document indices are open");
  for (const TokenShard& shard : shards_) {
    const std::string path = index_path_of(shard.path());
    if (!std::filesystem::exists(path))
      throw error(
          "{}: no such document index, which one document a row (pack: false) needs; "
          "`mpretrain tokenize` writes it beside {}",
          path, shard.path());
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
  check(number >= 0 && number < documents(), "document {} of {}", number, documents());
  return {document_begin(number), document_begin(number + 1)};
}

}  // namespace mpt
