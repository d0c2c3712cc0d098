#include "text/corpus/input_stream.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/text/utf8.h"

namespace mpt {

InputStream::InputStream(std::string path) : raw_(std::move(path)) {
  raw_.fill();
  decompressor_ = make_decompressor(raw_);
}

size_t InputStream::read(std::span<char> out) {
  if (out.empty()) return 0;
  return decompressor_ ? decompressor_->read(out) : read_plain(out);
}

size_t InputStream::read_plain(std::span<char> out) {
  if (raw_.unread().empty() && !raw_.fill()) return 0;
  const size_t count = std::min(out.size(), raw_.unread().size());
  std::copy_n(raw_.unread().begin(), count, out.begin());
  raw_.take(count);
  return count;
}

LineReader::LineReader(std::string path) : stream_(std::move(path)), buffer_(kInputBufferBytes) {
  // The first fill covers any byte order mark: both kinds of input begin with a full buffer.
  if (fill()) unread_ = unread_.last(without_byte_order_mark(view_of(unread_)).size());
}

std::string LineReader::place(int64_t first_line, std::string_view before) const {
  return fmt::format("{}:{}", stream_.path(),
                     first_line + std::count(before.begin(), before.end(), '\n'));
}

bool LineReader::fill() {
  unread_ = std::span(buffer_).first(stream_.read(buffer_));
  return !unread_.empty();
}

LineReader::Piece LineReader::next_piece(std::string& out, size_t limit) {
  const size_t end = out.size() + limit;
  for (;;) {
    if (unread_.empty() && !fill()) {
      if (!in_line_) return Piece::kEnd;
      in_line_ = false;
      ++line_number_;
      return Piece::kLine;
    }
    // Searches only as far as needed: a caller may take a long line in many small pieces.
    const size_t room = end - out.size();
    const auto searched = unread_.first(std::min(unread_.size(), room + 1));
    const auto newline = std::find(searched.begin(), searched.end(), '\n');
    const size_t length = static_cast<size_t>(newline - searched.begin());
    const size_t taken = std::min(length, room);
    out.append(unread_.data(), taken);
    in_line_ = true;
    if (taken < length) {
      unread_ = unread_.subspan(taken);
      return Piece::kPartial;
    }
    const bool complete = newline != searched.end();
    unread_ = unread_.subspan(taken + (complete ? 1 : 0));
    if (!complete) continue;
    if (out.ends_with('\r')) out.pop_back();
    in_line_ = false;
    ++line_number_;
    return Piece::kLine;
  }
}

}  // namespace mpt
