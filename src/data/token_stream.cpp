#include "data/token_stream.h"

#include <algorithm>
#include <array>

#include "core/check.h"
#include "core/io/atomic_output.h"
#include "core/io/file_system.h"

namespace mpt {
namespace {

constexpr std::array<char, 8> kIndexMagic{'M', 'P', 'T', 'D', 'O', 'C', 'S', '1'};

struct Header {
  std::array<char, 8> magic;
  uint64_t documents;
  uint64_t tokens;
};
static_assert(sizeof(Header) == 24);

// Throws Error unless the file has the size that its header says.
Header header_of(const ReadableFile& file, const std::string& path, int64_t tokens_of_shard) {
  Header header{};
  const int64_t size = file.size();
  if (size >= int64_t{sizeof header}) file.read(0, std::as_writable_bytes(std::span(&header, 1)));
  if (header.magic != kIndexMagic)
    throw error("{}: does not begin with MPTDOCS1; not a document index", path);
  const uint64_t room = (static_cast<uint64_t>(size) - sizeof header) / sizeof(uint64_t);
  if (header.documents != room || static_cast<uint64_t>(size) % sizeof(uint64_t) != 0)
    throw error("{}: lists {} documents, but its {} bytes hold {}", path, header.documents, size,
                room);
  if (header.tokens != static_cast<uint64_t>(tokens_of_shard))
    throw error("{}: belongs to a shard of {} tokens, but the one beside it has {}", path,
                header.tokens, tokens_of_shard);
  return header;
}

std::vector<uint32_t> starts_of(const std::string& path, int64_t tokens_of_shard) {
  require_regular_file(path);
  const auto file = posix_file_system().open_read(path);
  const auto documents = size_t(header_of(*file, path, tokens_of_shard).documents);
  std::vector<uint32_t> starts;
  starts.reserve(documents);
  std::array<uint64_t, 4096> buffer;  // NOLINT: filled before it is read
  while (starts.size() < documents) {
    const auto piece = std::span(buffer).first(std::min(buffer.size(), documents - starts.size()));
    file->read(int64_t(sizeof(Header) + starts.size() * sizeof(uint64_t)),
               std::as_writable_bytes(piece));
    for (const uint64_t start : piece) {
      const bool increasing = starts.empty() || start > starts.back();
      if (!increasing || start >= static_cast<uint64_t>(tokens_of_shard))
        throw error("{}: document {} begins at {}; expected increasing positions below {}", path,
                    starts.size(), start, tokens_of_shard);
      starts.push_back(static_cast<uint32_t>(start));
    }
  }
  return starts;
}

}  // namespace

std::string index_path_of(const std::string& shard_path) {
  const std::string stem =
      shard_path.ends_with(".bin") ? shard_path.substr(0, shard_path.size() - 4) : shard_path;
  return stem + ".idx";
}

DocumentIndex::DocumentIndex(const std::string& path, int64_t tokens_of_shard)
    : starts_(starts_of(path, tokens_of_shard)) {}

int64_t DocumentIndex::documents_until(int64_t position) const {
  return std::upper_bound(starts_.begin(), starts_.end(), position) - starts_.begin();
}

void write_document_index(const std::string& path, std::span<const uint64_t> starts,
                          int64_t tokens_of_shard, FileSystem& fs) {
  const Header header{kIndexMagic, starts.size(), static_cast<uint64_t>(tokens_of_shard)};
  OutputFile file(fs, path);
  file.append(std::as_bytes(std::span(&header, 1)));
  file.append(std::as_bytes(starts));
  file.commit();
}

namespace {

// The shard containing an item: the last one whose first item is not after it, which skips empty
// shards.
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
          "{}: no such document index; {} needs it, and `mpretrain tokenize` writes it beside {}",
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
