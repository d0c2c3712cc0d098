#include "data/document_index.h"

#include <array>
#include <cstring>

#include "core/check.h"
#include "core/output_file.h"

namespace mpt {
namespace {

constexpr std::array<char, 8> kMagic{'M', 'P', 'T', 'D', 'O', 'C', 'S', '1'};

struct Header {
  std::array<char, 8> magic;
  uint64_t documents;
  uint64_t tokens;
};
static_assert(sizeof(Header) == 24);

std::span<const uint64_t> starts_of(const MappedFile& file, int64_t tokens_of_shard) {
  const auto bytes = file.bytes();
  Header header{};
  if (bytes.size() >= sizeof header) std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kMagic)
    throw error("{}: does not begin with MPTDOCS1; not a document index", file.path());
  const uint64_t room = (bytes.size() - sizeof header) / sizeof(uint64_t);
  if (header.documents != room || bytes.size() % sizeof(uint64_t) != 0)
    throw error("{}: lists {} documents, but its {} bytes hold {}", file.path(), header.documents,
                bytes.size(), room);
  if (header.tokens != static_cast<uint64_t>(tokens_of_shard))
    throw error("{}: belongs to a shard of {} tokens, the one beside it has {}", file.path(), header.tokens,
                tokens_of_shard);
  return {reinterpret_cast<const uint64_t*>(bytes.data() + sizeof header), room};
}

void check_order(const MappedFile& file, std::span<const uint64_t> starts, int64_t tokens_of_shard) {
  for (size_t i = 0; i < starts.size(); ++i) {
    const bool increasing = i == 0 || starts[i] > starts[i - 1];
    if (!increasing || starts[i] >= static_cast<uint64_t>(tokens_of_shard))
      throw error("{}: document {} begins at {}; accepted are increasing positions below {}", file.path(), i,
                  starts[i], tokens_of_shard);
  }
}

}  // namespace

std::string index_path_of(const std::string& shard_path) {
  const std::string stem =
      shard_path.ends_with(".bin") ? shard_path.substr(0, shard_path.size() - 4) : shard_path;
  return stem + ".idx";
}

DocumentIndex::DocumentIndex(const std::string& path, int64_t tokens_of_shard)
    : file_(path), starts_(starts_of(file_, tokens_of_shard)) {
  check_order(file_, starts_, tokens_of_shard);
}

void write_document_index(const std::string& path, std::span<const uint64_t> starts, int64_t tokens_of_shard,
                          FileSystem& fs) {
  const Header header{kMagic, starts.size(), static_cast<uint64_t>(tokens_of_shard)};
  OutputFile file(fs, path);
  file.append(std::as_bytes(std::span(&header, 1)));
  file.append(std::as_bytes(starts));
  file.commit();
}

}  // namespace mpt
