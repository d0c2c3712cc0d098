// The bytes of a file or of standard input as they are stored, and what unpacks them.
//
// Compression is recognised by its first bytes, not by name: gzip with any number of members, zstd
// with any number of frames. Truncated or damaged data throws Error, and so does data after the
// compressed part that is not compressed, which zlib's own gzread() silently ignores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mpt {

// The name of an input that means standard input.
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

  // For messages; "standard input" for that.
  [[nodiscard]] const std::string& path() const { return path_; }
  // Bytes read and not taken yet.
  [[nodiscard]] std::span<char> unread() const { return unread_; }
  void take(size_t count) { unread_ = unread_.subspan(count); }
  // Reads more behind what is unread, as much as there is room for; false at the end.
  bool fill();
  [[nodiscard]] int64_t bytes_read() const { return bytes_read_; }

 private:
  std::string path_;
  int file_ = -1;
  int64_t bytes_read_ = 0;
  std::vector<char> buffer_;
  std::span<char> unread_;  // a part of buffer_
};

class Decompressor {
 public:
  virtual ~Decompressor() = default;
  // Unpacked bytes; 0 only at the end. `out` is not empty.
  virtual size_t read(std::span<char> out) = 0;
};

// What unpacks the input, which must have been filled; null if it is not compressed. Throws Error
// if its name says that it is.
std::unique_ptr<Decompressor> make_decompressor(RawInput& input);

}  // namespace mpt
