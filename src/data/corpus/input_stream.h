// Bytes and lines of a text file, plain or gzip, in constant memory.
//
// Compression is detected by the gzip magic, not by name. Multi-member gzip files are read in full.
// Truncated or damaged ones throw Error, and so does trailing data after a member that is not gzip,
// which zlib's own gzread() silently ignores.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace mpt {

class InputStream {
 public:
  explicit InputStream(std::string path);
  ~InputStream();
  InputStream(const InputStream&) = delete;
  InputStream& operator=(const InputStream&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  // Uncompressed bytes; 0 only at the end.
  size_t read(std::span<char> out);
  // Bytes read of the file itself, for progress.
  [[nodiscard]] int64_t file_bytes_read() const { return file_bytes_read_; }

 private:
  struct Inflater;
  bool fill();  // false at the end of the file
  size_t read_plain(std::span<char> out);
  size_t read_gzip(std::span<char> out);
  bool begin_next_member();

  std::string path_;
  int file_ = -1;
  int64_t file_bytes_read_ = 0;
  std::vector<char> buffer_;
  std::span<char> raw_;  // the unread part of buffer_
  std::unique_ptr<Inflater> inflater_;
};

class LineReader {
 public:
  enum class Piece {
    kLine,     // the rest of a line; its end ("\n" or "\r\n") is consumed and dropped
    kPartial,  // the limit was reached; the line continues
    kEnd,      // nothing is left
  };

  explicit LineReader(std::string path);
  // Appends at most `limit` bytes of the current line to `out`.
  Piece next_piece(std::string& out, size_t limit);
  // The line number, from 1, of the next piece.
  [[nodiscard]] int64_t line_number() const { return line_number_; }
  [[nodiscard]] const InputStream& stream() const { return stream_; }

 private:
  bool fill();

  InputStream stream_;
  std::vector<char> buffer_;
  std::span<const char> unread_;
  int64_t line_number_ = 1;
  bool in_line_ = false;  // bytes of the current line were already returned
};

}  // namespace mpt
