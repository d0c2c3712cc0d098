// Token shards in llm.c's format: read memory-mapped, written as a stream.
//
//   256 x int32, little-endian: [0] magic, [1] version, [2] tokens n (0 < n < 2^31), [3..] ignored
//   n x uint16 (magic 20240520, version 1) or n x uint32 (magic 20240801, version 7)
//
// The file size must be exactly 1024 + n * bytes per token. Positions and offsets are 64-bit. A
// shard is complete once it has its final name (OutputFile).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "core/io/atomic_output.h"
#include "core/io/hash.h"

namespace mpt {

// A file mapped read-only into memory.
//
// The mapping stays valid if the file is renamed or deleted, but not if it is truncated: readers of
// a mapped file that is shortened die of SIGBUS. This program never shortens a file: writers use
// OutputFile, which replaces whole files by rename.

class MappedFile {
 public:
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept
      : path_(std::move(other.path_)), data_(std::exchange(other.data_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return data_; }

 private:
  std::string path_;
  std::span<const std::byte> data_;
};

// Enumerators are bytes per token.
enum class TokenWidth : int { kUint16 = 2, kUint32 = 4 };

constexpr int64_t bytes_of(TokenWidth width) { return static_cast<int64_t>(width); }
// The narrowest width that holds every id below vocab_size.
constexpr TokenWidth token_width_for(int64_t vocab_size) {
  return vocab_size <= 65536 ? TokenWidth::kUint16 : TokenWidth::kUint32;
}

inline constexpr int64_t kMaxTokensPerShard = (int64_t{1} << 31) - 1;

class TokenShard {
 public:
  explicit TokenShard(const std::string& path);

  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] int64_t tokens() const { return tokens_; }
  [[nodiscard]] TokenWidth width() const { return width_; }

  // Copies tokens [first, first + out.size()). Throws Error naming file and position if one is >=
  // vocab_size.
  void read(int64_t first, std::span<int32_t> out, int64_t vocab_size) const;
  // Reads the whole shard; throws like read().
  void check_tokens_below(int64_t vocab_size) const;
  // Hash of the tokens as stored (the bytes after the header), as listed in a manifest.
  [[nodiscard]] std::string content_hash() const;

 private:
  [[nodiscard]] std::span<const std::byte> payload() const;

  MappedFile file_;
  TokenWidth width_;
  int64_t tokens_;
};

class TokenShardWriter {
 public:
  // What save() left of an unfinished shard.
  struct Saved {
    int64_t tokens;
    std::string hash;
  };

  TokenShardWriter(std::string path, TokenWidth width, FileSystem& fs = posix_file_system());
  // Goes on behind the tokens saved, also where the shard was completed since. Throws Error if they
  // are not there any more.
  TokenShardWriter(std::string path, TokenWidth width, const Saved& saved, FileSystem& fs);
  void append(std::span<const int32_t> tokens);
  // Returns when the tokens so far are on the storage device, where they stay without commit().
  Saved save();
  [[nodiscard]] int64_t tokens() const { return tokens_; }
  // Writes the header and moves the file to its final name. Throws Error if the shard has no
  // tokens. Returns the content hash.
  std::string commit();

 private:
  TokenWidth width_;
  Hasher hasher_;
  OutputFile file_;
  int64_t tokens_ = 0;
};

}  // namespace mpt
