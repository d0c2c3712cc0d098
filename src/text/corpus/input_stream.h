// Bytes and lines of a text file or of standard input, plain or compressed (raw_input.h), in
// constant memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/corpus/raw_input.h"

namespace mpt {

class InputStream {
 public:
  explicit InputStream(std::string path);

  // For messages.
  [[nodiscard]] const std::string& path() const { return raw_.path(); }
  // Reads decompressed bytes; returns 0 only at the end.
  size_t read(std::span<char> out);
  // Bytes read from the file itself, for progress.
  [[nodiscard]] int64_t file_bytes_read() const { return raw_.bytes_read(); }

 private:
  size_t read_plain(std::span<char> out);

  RawInput raw_;
  std::unique_ptr<Decompressor> decompressor_;  // null: plain input
};

class LineReader {
 public:
  enum class Piece {
    kLine,     // the rest of a line; its end ("\n" or "\r\n") is consumed and dropped
    kPartial,  // limit reached; the line continues
    kEnd,      // nothing is left
  };

  explicit LineReader(std::string path);
  // Appends at most `limit` bytes of the current line to `out`.
  Piece next_piece(std::string& out, size_t limit);
  // Line number (from 1) of the next piece.
  [[nodiscard]] int64_t line_number() const { return line_number_; }
  // "file:line" just after the text `before`, which begins on line `first_line`.
  [[nodiscard]] std::string place(int64_t first_line, std::string_view before) const;
  [[nodiscard]] const InputStream& stream() const { return stream_; }

 private:
  bool fill();

  InputStream stream_;
  std::vector<char> buffer_;
  std::span<const char> unread_;
  int64_t line_number_ = 1;
  bool in_line_ = false;  // part of the current line has been returned
};

}  // namespace mpt
