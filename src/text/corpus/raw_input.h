// Raw bytes of a file or of standard input, and their decompressors.
//
// Compression is recognised by the first bytes, not by name: gzip with any number of members, zstd
// with any number of frames. Throws Error on truncated or corrupt data and on uncompressed data
// after the compressed part, which zlib's own gzread() silently ignores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mpt {

// Input name that stands for standard input.
inline constexpr std::string_view kStandardInput = "-";

inline constexpr size_t kInputBufferBytes = size_t{256} << 10;

inline std::string_view view_of(std::span<const char> bytes) {
  return {bytes.data(), bytes.size()};
}

class RawInput {
 public:
  // Throws Error if the file cannot be read, or if standard input is a terminal.
  explicit RawInput(std::string path);
  ~RawInput();
  RawInput(const RawInput&) = delete;
  RawInput& operator=(const RawInput&) = delete;

  // For messages; "standard input" for standard input.
  [[nodiscard]] const std::string& path() const { return path_; }
  // Bytes read but not yet taken.
  [[nodiscard]] std::span<char> unread() const { return unread_; }
  void take(size_t count) { unread_ = unread_.subspan(count); }
  // Appends to the unread bytes as much as there is room for; returns false at the end.
  bool fill();
  [[nodiscard]] int64_t bytes_read() const { return bytes_read_; }

 private:
  std::string path_;
  int file_ = -1;
  int64_t bytes_read_ = 0;
  std::vector<char> buffer_;
  std::span<char> unread_;  // part of buffer_
};

class Decompressor {
 public:
  virtual ~Decompressor() = default;
  // Reads decompressed bytes; returns 0 only at the end. `out` must not be empty.
  virtual size_t read(std::span<char> out) = 0;
};

// Returns a decompressor for the input, which must have been filled; null if it is not compressed.
// Throws Error if its name claims that it is.
std::unique_ptr<Decompressor> make_decompressor(RawInput& input);

}  // namespace mpt
