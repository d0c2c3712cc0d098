// Token shards in llm.c's format: random-access reader and streaming writer.
//
//   256 x int32, little-endian: [0] magic, [1] version, [2] tokens n (0 < n < 2^31), [3..] ignored
//   n x uint16 (magic 20240520, version 1) or n x uint32 (magic 20240801, version 7)
//
// The file size must be exactly 1024 + n * bytes per token. Positions and offsets are 64-bit. A
// shard is complete once it has its final name (OutputFile). Shards are read by calls, not mapped
// into memory, so a file truncated later or an I/O error is an Error that names the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/io/file_system.h"
#include "core/io/hash.h"
#include "core/io/output_file.h"

namespace mpt {

// Enumerators are bytes per token.
enum class TokenWidth : int { kUint16 = 2, kUint32 = 4 };

constexpr int64_t bytes_of(TokenWidth width) { return static_cast<int64_t>(width); }
// The narrowest width that holds every id below vocab_size.
constexpr TokenWidth token_width_for(int64_t vocab_size) {
  return vocab_size <= 65536 ? TokenWidth::kUint16 : TokenWidth::kUint32;
}

inline constexpr int64_t kMaxTokensPerShard = (int64_t{1} << 31) - 1;

// Keeps its file open, up to half of the files that the process may open (RLIMIT_NOFILE); further
// shards are reopened for each read. All members are thread-safe.
class TokenShard {
 public:
  explicit TokenShard(const std::string& path);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int64_t tokens() const { return tokens_; }
  [[nodiscard]] TokenWidth width() const { return width_; }

  // Copies tokens [first, first + out.size()). Throws Error naming the file if they cannot be read,
  // and also the position of a token >= vocab_size.
  void read(int64_t first, std::span<int32_t> out, int64_t vocab_size) const;
  // Reads the first `count` tokens (at most all); throws like read().
  void check_tokens_below(int64_t vocab_size, int64_t count = kMaxTokensPerShard) const;
  // Hash of the tokens as stored (the bytes after the header), as listed in a manifest.
  [[nodiscard]] std::string content_hash() const;
  // Hash of 8 spans of up to 1,024 tokens, evenly spread from first to last; distinguishes shards
  // without reading them in full.
  [[nodiscard]] std::string sample_hash() const;

 private:
  // Reads bytes [offset, offset + target.size()), counted after the header.
  void read_stored(int64_t offset, std::span<std::byte> target) const;
  [[noreturn]] void refuse_token(std::span<const int32_t> tokens, int64_t first,
                                 int64_t vocab_size) const;

  std::string path_;
  std::unique_ptr<const ReadableFile> file_;  // null: reopened for each read
  TokenWidth width_{};
  int64_t tokens_ = 0;
};

class TokenShardWriter {
 public:
  // State of an unfinished shard, returned by save().
  struct Saved {
    int64_t tokens;
    std::string hash;
  };

  TokenShardWriter(std::string path, TokenWidth width, FileSystem& fs = posix_file_system());
  // Resumes after the saved tokens, even if the shard has been completed since. Throws Error if
  // they no longer exist.
  TokenShardWriter(std::string path, TokenWidth width, const Saved& saved, FileSystem& fs);
  void append(std::span<const int32_t> tokens);
  // Returns once the tokens so far are on the storage device, where they stay even without
  // commit().
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
