#include "data/token_shard.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include <sys/resource.h>

#include "core/check.h"
#include "core/io/file_system.h"

namespace mpt {
namespace {

static_assert(std::endian::native == std::endian::little,
              "shards are little-endian and read as they are");

constexpr int64_t kHashedPiece = int64_t{4} << 20;  // bytes
constexpr int64_t kHeaderWords = 256;
constexpr int64_t kShardHeaderBytes = kHeaderWords * 4;

struct ShardFormat {
  int32_t magic;
  int32_t version;
  TokenWidth width;
};
constexpr std::array kFormats{ShardFormat{20240520, 1, TokenWidth::kUint16},
                              ShardFormat{20240801, 7, TokenWidth::kUint32}};

using HeaderWords = std::array<int32_t, 3>;

std::unique_ptr<const ReadableFile> open_shard(const std::string& path) {
  require_regular_file(path);
  return posix_file_system().open_read(path);
}

HeaderWords header_of(const ReadableFile& file, const std::string& path) {
  if (file.size() < kShardHeaderBytes)
    throw error("{}: has {} bytes, too few for a token shard, whose header alone takes {}", path,
                file.size(), kShardHeaderBytes);
  HeaderWords words;
  file.read(0, std::as_writable_bytes(std::span(words)));
  return words;
}

TokenWidth width_of(const HeaderWords& header, const std::string& path) {
  for (const ShardFormat& format : kFormats) {
    if (header[0] != format.magic) continue;
    if (header[1] == format.version) return format.width;
    throw error("{}: header word 1 is version {}; magic {} requires version {}", path, header[1],
                format.magic, format.version);
  }
  throw error(
      "{}: header word 0 is {}, not the magic of a token shard: {} (uint16 tokens) or {} (uint32 "
      "tokens)",
      path, header[0], kFormats[0].magic, kFormats[1].magic);
}

int64_t tokens_of(const HeaderWords& header, TokenWidth width, const std::string& path,
                  int64_t found) {
  const int64_t tokens = header[2];
  if (tokens <= 0)
    throw error("{}: header word 2 is {} tokens; expected 1 to {}", path, tokens,
                kMaxTokensPerShard);
  const int64_t expected = kShardHeaderBytes + tokens * bytes_of(width);
  if (found != expected)
    throw error(
        "{}: has {} bytes, but the {} tokens of {} bytes in its header need exactly {}; the file "
        "is {}",
        path, found, tokens, bytes_of(width), expected,
        found < expected ? "truncated" : "too long");
  return tokens;
}

// Returns the largest token; correct above INT32_MAX too, where the value in `out` is negative.
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

namespace {

int64_t most_kept_open() {
  rlimit files{};
  return ::getrlimit(RLIMIT_NOFILE, &files) == 0 ? static_cast<int64_t>(files.rlim_cur / 2) : 0;
}

// A shard that stays open.
class KeptOpen final : public ReadableFile {
 public:
  // Closes the file and returns null if the limit on open files is reached.
  static std::unique_ptr<const ReadableFile> of(std::unique_ptr<const ReadableFile> file) {
    auto kept = std::make_unique<KeptOpen>(std::move(file));
    return count_ <= most_kept_open() ? std::move(kept) : nullptr;
  }
  explicit KeptOpen(std::unique_ptr<const ReadableFile> file) : file_(std::move(file)) { ++count_; }
  ~KeptOpen() override { --count_; }
  KeptOpen(const KeptOpen&) = delete;
  KeptOpen& operator=(const KeptOpen&) = delete;

  [[nodiscard]] int64_t size() const override { return file_->size(); }
  void read(int64_t offset, std::span<std::byte> target) const override {
    file_->read(offset, target);
  }

 private:
  inline static std::atomic<int64_t> count_ = 0;
  std::unique_ptr<const ReadableFile> file_;
};

}  // namespace

TokenShard::TokenShard(const std::string& path) : path_(path) {
  auto file = open_shard(path);
  const HeaderWords header = header_of(*file, path_);
  width_ = width_of(header, path_);
  tokens_ = tokens_of(header, width_, path_, file->size());
  file_ = KeptOpen::of(std::move(file));
}

void TokenShard::read_stored(int64_t offset, std::span<std::byte> target) const {
  if (file_ != nullptr) return file_->read(kShardHeaderBytes + offset, target);
  open_shard(path_)->read(kShardHeaderBytes + offset, target);
}

void TokenShard::read(int64_t first, std::span<int32_t> out, int64_t vocab_size) const {
  check(first >= 0 && first + std::ssize(out) <= tokens_, "{}: cannot read {} tokens at {} of {}",
        path(), out.size(), first, tokens_);
  constexpr size_t kPiece = 8192;                           // tokens
  std::array<std::byte, kPiece * sizeof(uint32_t)> stored;  // NOLINT: filled before it is read
  while (!out.empty()) {
    const std::span<int32_t> piece = out.first(std::min(out.size(), kPiece));
    const int64_t width = bytes_of(width_);
    read_stored(first * width, std::span(stored).first(piece.size() * size_t(width)));
    const uint32_t largest = width_ == TokenWidth::kUint16 ? widen<uint16_t>(stored.data(), piece)
                                                           : widen<uint32_t>(stored.data(), piece);
    if (largest >= vocab_size) refuse_token(piece, first, vocab_size);
    first += std::ssize(piece);
    out = out.subspan(piece.size());
  }
}

// Reports the first invalid token; `first` is the position of tokens[0].
void TokenShard::refuse_token(std::span<const int32_t> tokens, int64_t first,
                              int64_t vocab_size) const {
  const auto bad = std::ranges::find_if(
      tokens, [&](int32_t token) { return static_cast<uint32_t>(token) >= vocab_size; });
  throw error("{}: token {} at position {} is outside the vocabulary, whose ids are 0 to {}",
              path(), static_cast<uint32_t>(*bad), first + (bad - tokens.begin()), vocab_size - 1);
}

void TokenShard::check_tokens_below(int64_t vocab_size, int64_t count) const {
  const int64_t end = std::min(count, tokens_);
  std::vector<int32_t> buffer(size_t{1} << 16);
  for (int64_t first = 0; first < end; first += std::ssize(buffer))
    read(first, std::span(buffer).first(size_t(std::min(end - first, std::ssize(buffer)))),
         vocab_size);
}

std::string TokenShard::content_hash() const {
  const int64_t end = tokens_ * bytes_of(width_);
  std::vector<std::byte> buffer(size_t(std::min(kHashedPiece, end)));
  Hasher hasher;
  for (int64_t at = 0; at < end; at += kHashedPiece) {
    const auto piece = std::span(buffer).first(size_t(std::min(kHashedPiece, end - at)));
    read_stored(at, piece);
    hasher.update(piece);
  }
  return hasher.hex();
}

std::string TokenShard::sample_hash() const {
  constexpr int64_t kSpans = 8, kTokens = 1024;
  std::vector<int32_t> span(size_t(std::min(kTokens, tokens_)));
  Hasher hasher;
  for (int64_t i = 0; i < kSpans; ++i) {
    const int64_t first = (tokens_ - std::ssize(span)) * i / (kSpans - 1);
    read(first, span, int64_t{1} << 32);
    hasher.update(std::as_bytes(std::span(span)));
  }
  return hasher.hex();
}

TokenShardWriter::TokenShardWriter(std::string path, TokenWidth width, FileSystem& fs)
    : width_(width), file_(fs, std::move(path)) {
  const std::array<std::byte, kShardHeaderBytes> header{};
  file_.append(header);
}

namespace {

// Feeds the saved tokens to the hasher. Returns the bytes that they and the header take.
int64_t read_saved(FileSystem& fs, const std::string& path, TokenWidth width,
                   const TokenShardWriter::Saved& saved, Hasher& hasher) {
  const std::string temporary = OutputFile::temporary_of(path);
  if (!fs.exists(temporary) && fs.exists(path)) fs.rename(path, temporary);
  const auto file = fs.open_read(temporary);
  const int64_t end = kShardHeaderBytes + saved.tokens * bytes_of(width);
  std::vector<std::byte> buffer(static_cast<size_t>(kHashedPiece));
  for (int64_t at = kShardHeaderBytes; at < end; at += kHashedPiece) {
    const auto piece =
        std::span(buffer).first(static_cast<size_t>(std::min(kHashedPiece, end - at)));
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
