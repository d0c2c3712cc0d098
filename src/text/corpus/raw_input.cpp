#include "text/corpus/raw_input.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "core/check.h"
#include "core/io/file_system.h"

namespace mpt {
namespace {

constexpr int kGzipWindow = 15 + 16;  // zlib: largest window, gzip wrapper
// Largest window, and thus memory, under the default settings of the zstd command.
constexpr int kMostZstdWindowLog = 27;
constexpr std::string_view kGzipMagic = "\x1f\x8b";
constexpr std::string_view kZstdMagic = "\x28\xb5\x2f\xfd";

// A frame, or a skippable frame, which some programs write first (RFC 8878, 3.1).
bool begins_as_zstd(std::string_view bytes) {
  constexpr std::string_view kSkippable = "\x2a\x4d\x18";
  return bytes.starts_with(kZstdMagic) ||
         (bytes.size() >= 4 && (bytes[0] & 0xf0) == 0x50 && bytes.substr(1, 3) == kSkippable);
}

int open_input(const std::string& path) {
  if (path == kStandardInput) {
    if (::isatty(STDIN_FILENO) != 0)
      throw error("standard input is a terminal; expected text from a pipe or a file");
    return ::dup(STDIN_FILENO);
  }
  require_regular_file(path);
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
}

}  // namespace

RawInput::RawInput(std::string path)
    : path_(path == kStandardInput ? "standard input" : path),
      file_(open_input(path)),
      buffer_(kInputBufferBytes) {
  if (file_ < 0)
    throw error("{}: cannot be opened for reading: {}", path_,
                std::generic_category().message(errno));
}

RawInput::~RawInput() { ::close(file_); }

bool RawInput::fill() {
  std::copy(unread_.begin(), unread_.end(), buffer_.begin());
  const size_t kept = unread_.size();
  size_t filled = kept;
  while (filled < buffer_.size()) {
    const ssize_t got = ::read(file_, buffer_.data() + filled, buffer_.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      throw error("{}: reading failed: {}", path_, std::generic_category().message(errno));
    if (got == 0) break;
    filled += static_cast<size_t>(got);
  }
  bytes_read_ += static_cast<int64_t>(filled - kept);
  unread_ = std::span(buffer_).first(filled);
  return filled > kept;
}

namespace {

class Gzip final : public Decompressor {
 public:
  explicit Gzip(RawInput& input) : input_(input) {
    const int status = inflateInit2(&zlib_, kGzipWindow);
    check(status == Z_OK, "inflateInit2: {}", status);
  }
  ~Gzip() override { inflateEnd(&zlib_); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

  size_t read(std::span<char> out) override {
    zlib_.next_out = reinterpret_cast<Bytef*>(out.data());
    zlib_.avail_out = static_cast<uInt>(std::min(out.size(), kInputBufferBytes));
    const uInt room = zlib_.avail_out;
    while (zlib_.avail_out == room) {
      if (!in_member_ && !begin_next_member()) return 0;
      if (input_.unread().empty() && !input_.fill())
        throw error("{}: the gzip data is truncated", input_.path());
      inflate_some();
    }
    return room - zlib_.avail_out;
  }

 private:
  void inflate_some() {
    const std::span<char> packed = input_.unread();
    zlib_.next_in = reinterpret_cast<Bytef*>(packed.data());
    zlib_.avail_in = static_cast<uInt>(packed.size());
    const int status = inflate(&zlib_, Z_NO_FLUSH);
    input_.take(packed.size() - zlib_.avail_in);
    if (status == Z_STREAM_END)
      in_member_ = false;
    else if (status != Z_OK && status != Z_BUF_ERROR)
      throw error("{}: damaged gzip data near byte {}: {}", input_.path(),
                  input_.bytes_read() - std::ssize(input_.unread()),
                  zlib_.msg != nullptr ? zlib_.msg : "cannot be decompressed");
  }

  // A member is followed by another one, the end of the file, or zero padding added by tape and
  // block writers.
  bool begin_next_member() {
    for (;;) {
      if (input_.unread().size() < kGzipMagic.size() && input_.fill()) continue;
      if (input_.unread().empty()) return false;
      if (view_of(input_.unread()).starts_with(kGzipMagic)) break;
      if (input_.unread()[0] != 0)
        throw error("{}: the data after the compressed data is not gzip", input_.path());
      input_.take(1);
    }
    inflateReset(&zlib_);
    in_member_ = true;
    return true;
  }

  RawInput& input_;
  z_stream zlib_{};
  bool in_member_ = true;
};

class Zstd final : public Decompressor {
 public:
  explicit Zstd(RawInput& input) : input_(input), zstd_(ZSTD_createDCtx()) {
    check(zstd_ != nullptr, "ZSTD_createDCtx failed");
    ZSTD_DCtx_setParameter(zstd_, ZSTD_d_windowLogMax, kMostZstdWindowLog);
  }
  ~Zstd() override { ZSTD_freeDCtx(zstd_); }
  Zstd(const Zstd&) = delete;
  Zstd& operator=(const Zstd&) = delete;

  size_t read(std::span<char> out) override {
    ZSTD_outBuffer unpacked{out.data(), out.size(), 0};
    while (unpacked.pos == 0) {
      const bool more = !input_.unread().empty() || input_.fill();
      if (!more && !in_frame_) return 0;
      ZSTD_inBuffer packed{input_.unread().data(), input_.unread().size(), 0};
      const size_t status = ZSTD_decompressStream(zstd_, &unpacked, &packed);
      input_.take(packed.pos);
      if (ZSTD_isError(status) != 0) fail(status);
      in_frame_ = status != 0;
      if (!more && in_frame_ && unpacked.pos == 0)
        throw error("{}: the zstd data is truncated", input_.path());
    }
    return unpacked.pos;
  }

 private:
  [[noreturn]] void fail(size_t status) const {
    const int64_t at = input_.bytes_read() - std::ssize(input_.unread());
    switch (ZSTD_getErrorCode(status)) {
      case ZSTD_error_prefix_unknown:
        throw error("{}: the data near byte {} is not zstd", input_.path(), at);
      case ZSTD_error_frameParameter_windowTooLarge:
        throw error("{}: needs a zstd window of more than {} MiB; pack it without --long",
                    input_.path(), (1 << kMostZstdWindowLog) >> 20);
      default:
        throw error("{}: damaged zstd data near byte {}: {}", input_.path(), at,
                    ZSTD_getErrorName(status));
    }
  }

  RawInput& input_;
  ZSTD_DCtx* zstd_;
  bool in_frame_ = true;
};

}  // namespace

std::unique_ptr<Decompressor> make_decompressor(RawInput& input) {
  const std::string_view begin = view_of(input.unread());
  if (begin.starts_with(kGzipMagic)) return std::make_unique<Gzip>(input);
  if (begins_as_zstd(begin)) return std::make_unique<Zstd>(input);
  if (input.path().ends_with(".gz"))
    throw error("{}: named .gz, but is not a gzip file", input.path());
  if (input.path().ends_with(".zst"))
    throw error("{}: named .zst, but is not a zstd file", input.path());
  return nullptr;
}

}  // namespace mpt
