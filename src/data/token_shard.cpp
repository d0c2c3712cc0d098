#include "data/token_shard.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/check.h"
#include "core/io/file_system.h"

namespace mpt {
namespace {

std::string last_failure() { return std::generic_category().message(errno); }

}  // namespace

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  require_regular_file(path_);
  const int file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw error("{}: cannot be opened for reading: {}", path_, last_failure());
  struct stat status {};
  void* address = nullptr;
  if (::fstat(file, &status) == 0 && status.st_size > 0)
    address = ::mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_SHARED, file, 0);
  const std::string failure = address == MAP_FAILED ? last_failure() : "";
  ::close(file);
  if (!failure.empty()) throw error("{}: cannot be mapped into memory: {}", path_, failure);
  if (address != nullptr)
    data_ = {static_cast<const std::byte*>(address), static_cast<size_t>(status.st_size)};
}

MappedFile::~MappedFile() {
  if (!data_.empty()) ::munmap(const_cast<std::byte*>(data_.data()), data_.size());
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  return *this;
}

namespace {

static_assert(std::endian::native == std::endian::little,
              "shards are little-endian and mapped as they are");

constexpr int64_t kHeaderWords = 256;
constexpr int64_t kShardHeaderBytes = kHeaderWords * 4;

struct ShardFormat {
  int32_t magic;
  int32_t version;
  TokenWidth width;
};
constexpr std::array kFormats{ShardFormat{20240520, 1, TokenWidth::kUint16},
                              ShardFormat{20240801, 7, TokenWidth::kUint32}};

std::array<int32_t, 3> header_of(const MappedFile& file) {
  if (static_cast<int64_t>(file.bytes().size()) < kShardHeaderBytes)
    throw error("{}: has {} bytes, too few for a token shard, whose header alone takes {}",
                file.path(), file.bytes().size(), kShardHeaderBytes);
  std::array<int32_t, 3> words;
  std::memcpy(words.data(), file.bytes().data(), sizeof words);
  return words;
}

TokenWidth width_of(const MappedFile& file) {
  const auto header = header_of(file);
  for (const ShardFormat& format : kFormats) {
    if (header[0] != format.magic) continue;
    if (header[1] == format.version) return format.width;
    throw error("{}: header word 1 is version {}; magic {} requires version {}", file.path(),
                header[1], format.magic, format.version);
  }
  throw error(
      "{}: header word 0 is {}, not the magic of a token shard: {} (uint16 tokens) or {} (uint32 "
      "tokens)",
      file.path(), header[0], kFormats[0].magic, kFormats[1].magic);
}

int64_t tokens_of(const MappedFile& file, TokenWidth width) {
  const int64_t tokens = header_of(file)[2];
  if (tokens <= 0)
    throw error("{}: header word 2 is {} tokens; expected 1 to {}", file.path(), tokens,
                kMaxTokensPerShard);
  const int64_t expected = kShardHeaderBytes + tokens * bytes_of(width);
  const auto found = static_cast<int64_t>(file.bytes().size());
  if (found != expected)
    throw error(
        "{}: has {} bytes, but the {} tokens of {} bytes in its header need exactly {}; the file "
        "is {}",
        file.path(), found, tokens, bytes_of(width), expected,
        found < expected ? "truncated" : "too long");
  return tokens;
}

// Returns the largest token, correct even above INT32_MAX, where the value in `out` is negative.
template <class Stored>
uint32_t widen(const std::byte* from, std::span<int32_t> out) {
  uint32_t largest = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    Stored token;
    std::memcpy(&token, from + i * sizeof token, sizeof token);
    largest = std::max<uint32_t>(largest, token);
    out[i] = static_cast<int32_t>(token);
  }
  return largest;
}

}  // namespace

TokenShard::TokenShard(const std::string& path)
    : file_(path), width_(width_of(file_)), tokens_(tokens_of(file_, width_)) {}

std::span<const std::byte> TokenShard::payload() const {
  return file_.bytes().subspan(kShardHeaderBytes);
}

void TokenShard::read(int64_t first, std::span<int32_t> out, int64_t vocab_size) const {
  const auto count = static_cast<int64_t>(out.size());
  check(first >= 0 && first + count <= tokens_, "{}: cannot read {} tokens at {} of {}", path(),
        count, first, tokens_);
  const std::byte* from = payload().data() + first * bytes_of(width_);
  const uint32_t largest =
      width_ == TokenWidth::kUint16 ? widen<uint16_t>(from, out) : widen<uint32_t>(from, out);
  if (count == 0 || largest < vocab_size) return;
  const auto bad = std::find_if(out.begin(), out.end(), [&](int32_t token) {
    return static_cast<uint32_t>(token) >= vocab_size;
  });
  throw error("{}: token {} at position {} is outside the vocabulary, whose ids are 0 to {}",
              path(), static_cast<uint32_t>(*bad), first + (bad - out.begin()), vocab_size - 1);
}

void TokenShard::check_tokens_below(int64_t vocab_size) const {
  std::vector<int32_t> buffer(size_t{1} << 16);
  for (int64_t first = 0; first < tokens_; first += static_cast<int64_t>(buffer.size())) {
    const int64_t count = std::min<int64_t>(tokens_ - first, static_cast<int64_t>(buffer.size()));
    read(first, std::span(buffer).first(static_cast<size_t>(count)), vocab_size);
  }
}

std::string TokenShard::content_hash() const { return hash_bytes(payload()); }

TokenShardWriter::TokenShardWriter(std::string path, TokenWidth width, FileSystem& fs)
    : width_(width), file_(fs, std::move(path)) {
  const std::array<std::byte, kShardHeaderBytes> header{};
  file_.append(header);
}

namespace {

// Feeds the saved tokens to the hasher. Returns the bytes that they and the header take.
int64_t read_saved(FileSystem& fs, const std::string& path, TokenWidth width,
                   const TokenShardWriter::Saved& saved, Hasher& hasher) {
  constexpr int64_t kPiece = int64_t{4} << 20;
  const std::string temporary = OutputFile::temporary_of(path);
  if (!fs.exists(temporary) && fs.exists(path)) fs.rename(path, temporary);
  const auto file = fs.open_read(temporary);
  const int64_t end = kShardHeaderBytes + saved.tokens * bytes_of(width);
  std::vector<std::byte> buffer(static_cast<size_t>(kPiece));
  for (int64_t at = kShardHeaderBytes; at < end; at += kPiece) {
    const auto piece = std::span(buffer).first(static_cast<size_t>(std::min(kPiece, end - at)));
    file->read(at, piece);
    hasher.update(piece);
  }
  if (hasher.hex() != saved.hash)
    throw error("{}: its first {} tokens are not those that were saved", temporary, saved.tokens);
  return end;
}

}  // namespace

TokenShardWriter::TokenShardWriter(std::string path, TokenWidth width, const Saved& saved,
                                   FileSystem& fs)
    : width_(width),
      file_(fs, path, read_saved(fs, path, width, saved, hasher_)),
      tokens_(saved.tokens) {}

TokenShardWriter::Saved TokenShardWriter::save() {
  file_.save();
  return {.tokens = tokens_, .hash = hasher_.hex()};
}

void TokenShardWriter::append(std::span<const int32_t> tokens) {
  tokens_ += static_cast<int64_t>(tokens.size());
  check(tokens_ <= kMaxTokensPerShard, "{}: {} tokens; a shard holds at most {}", file_.path(),
        tokens_, kMaxTokensPerShard);
  std::span<const std::byte> stored = std::as_bytes(tokens);
  std::vector<uint16_t> narrow;
  if (width_ == TokenWidth::kUint16) {
    narrow.assign(tokens.begin(), tokens.end());
    stored = std::as_bytes(std::span(narrow));
  }
  const int32_t limit = width_ == TokenWidth::kUint16 ? 65535 : INT32_MAX;
  for (const int32_t token : tokens)
    check(token >= 0 && token <= limit, "{}: token {} is outside the stored range 0 to {}",
          file_.path(), token, limit);
  hasher_.update(stored);
  file_.append(stored);
}

std::string TokenShardWriter::commit() {
  if (tokens_ == 0) throw error("{}: a token shard needs at least one token", file_.path());
  const ShardFormat& format = kFormats[width_ == TokenWidth::kUint16 ? 0 : 1];
  const std::array<int32_t, 3> header{format.magic, format.version, static_cast<int32_t>(tokens_)};
  file_.overwrite(0, std::as_bytes(std::span(header)));
  file_.commit();
  return hasher_.hex();
}

}  // namespace mpt
