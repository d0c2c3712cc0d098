#include "data/document_index.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/io/file_system.h"
#include "core/io/output_file.h"

namespace mpt {
namespace {

constexpr std::array<char, 8> kIndexMagic{'M', 'P', 'T', 'D', 'O', 'C', 'S', '1'};

struct Header {
  std::array<char, 8> magic;
  uint64_t documents;
  uint64_t tokens;
};
static_assert(sizeof(Header) == 24);

// Throws Error unless the file size matches its header.
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
    throw error("{}: belongs to a shard of {} tokens, but the one next to it has {}", path,
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

}  // namespace mpt
