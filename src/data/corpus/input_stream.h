// Bytes and lines of a text file, plain or gzip, with memory that does not grow with the file.
//
// Compression is recognised by the gzip magic, not by the name. Gzip files of several members are read
// through; a truncated or damaged one throws Error, and so does anything but gzip behind a member, which
// zlib's own gzread() would leave out without a word.
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
  // How far the file itself has been read, for progress.
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
    kLine,     // the rest of a line; its end ("\n" or "\r\n") is consumed and left out
    kPartial,  // the limit is reached and the line goes on
    kEnd,      // nothing is left
  };

  explicit LineReader(std::string path);
  // Appends at most `limit` bytes of the current line to `out`.
  Piece next_piece(std::string& out, size_t limit);
  // The line that the next piece belongs to, from 1.
  [[nodiscard]] int64_t line_number() const { return line_number_; }
  [[nodiscard]] const InputStream& stream() const { return stream_; }

 private:
  bool fill();

  InputStream stream_;
  std::vector<char> buffer_;
  std::span<const char> unread_;
  int64_t line_number_ = 1;
  bool in_line_ = false;  // bytes of the current line were already given out
};

}  // namespace mpt
