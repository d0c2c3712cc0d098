#include "data/corpus/input_stream.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include "core/check.h"
#include "core/io/file_system.h"

namespace mpt {
namespace {

constexpr size_t kBufferBytes = size_t{256} << 10;
constexpr int kGzipWindow = 15 + 16;  // zlib: the largest window, gzip wrapper
constexpr std::string_view kGzipMagic = "\x1f\x8b";
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

std::string_view view_of(std::span<const char> bytes) { return {bytes.data(), bytes.size()}; }

}  // namespace

struct InputStream::Inflater {
  z_stream zlib{};
  bool in_member = true;

  Inflater() {
    const int status = inflateInit2(&zlib, kGzipWindow);
    check(status == Z_OK, "inflateInit2: {}", status);
  }
  ~Inflater() { inflateEnd(&zlib); }
};

InputStream::InputStream(std::string path) : path_(std::move(path)), buffer_(kBufferBytes) {
  require_regular_file(path_);
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (file_ < 0)
    throw error("{}: cannot be opened for reading: {}", path_,
                std::generic_category().message(errno));
  try {
    fill();
    if (view_of(raw_).starts_with(kGzipMagic))
      inflater_ = std::make_unique<Inflater>();
    else if (path_.ends_with(".gz"))
      throw error("{}: named .gz, but is not a gzip file", path_);
  } catch (...) {
    ::close(file_);
    throw;
  }
}

InputStream::~InputStream() { ::close(file_); }

// Appends to an unread rest, which is at most one byte of a split gzip magic.
bool InputStream::fill() {
  std::copy(raw_.begin(), raw_.end(), buffer_.begin());
  const size_t kept = raw_.size();
  ssize_t got;
  do {
    got = ::read(file_, buffer_.data() + kept, buffer_.size() - kept);
  } while (got < 0 && errno == EINTR);
  if (got < 0) throw error("{}: reading failed: {}", path_, std::generic_category().message(errno));
  file_bytes_read_ += got;
  raw_ = std::span(buffer_).first(kept + static_cast<size_t>(got));
  return got > 0;
}

size_t InputStream::read(std::span<char> out) {
  if (out.empty()) return 0;
  return inflater_ ? read_gzip(out) : read_plain(out);
}

size_t InputStream::read_plain(std::span<char> out) {
  if (raw_.empty() && !fill()) return 0;
  const size_t count = std::min(out.size(), raw_.size());
  std::copy_n(raw_.begin(), count, out.begin());
  raw_ = raw_.subspan(count);
  return count;
}

// After a member comes another one, the end of the file, or zero padding added by tape and block
// writers.
bool InputStream::begin_next_member() {
  for (;;) {
    if (raw_.size() < kGzipMagic.size() && fill()) continue;
    if (raw_.empty()) return false;
    if (view_of(raw_).starts_with(kGzipMagic)) break;
    if (raw_[0] != 0) throw error("{}: the data after the compressed data is not gzip", path_);
    raw_ = raw_.subspan(1);
  }
  inflateReset(&inflater_->zlib);
  inflater_->in_member = true;
  return true;
}

size_t InputStream::read_gzip(std::span<char> out) {
  z_stream& zlib = inflater_->zlib;
  zlib.next_out = reinterpret_cast<Bytef*>(out.data());
  zlib.avail_out = static_cast<uInt>(std::min(out.size(), kBufferBytes));
  const uInt room = zlib.avail_out;
  while (zlib.avail_out == room) {
    if (!inflater_->in_member && !begin_next_member()) return 0;
    if (raw_.empty() && !fill()) throw error("{}: the gzip data is truncated", path_);
    zlib.next_in = reinterpret_cast<Bytef*>(raw_.data());
    zlib.avail_in = static_cast<uInt>(raw_.size());
    const int status = inflate(&zlib, Z_NO_FLUSH);
    raw_ = raw_.last(zlib.avail_in);
    if (status == Z_STREAM_END)
      inflater_->in_member = false;
    else if (status != Z_OK && status != Z_BUF_ERROR)
      throw error("{}: damaged gzip data near byte {}: {}", path_,
                  file_bytes_read_ - int64_t(raw_.size()),
                  zlib.msg != nullptr ? zlib.msg : "cannot be decompressed");
  }
  return room - zlib.avail_out;
}

LineReader::LineReader(std::string path) : stream_(std::move(path)), buffer_(kBufferBytes) {
  // Skip a byte order mark. The first fill holds all of it: both kinds of input begin with a full
  // buffer.
  if (fill() && view_of(unread_).starts_with(kByteOrderMark))
    unread_ = unread_.subspan(kByteOrderMark.size());
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
    // No further than needed: a caller that takes little of a long line comes often.
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
