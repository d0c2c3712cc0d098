#include "data/output_file.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "core/check.h"

namespace mpt {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

// Makes the rename itself durable. A file system that cannot sync directories is no reason to fail.
void sync_directory_of(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path();
  const int directory = ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return;
  ::fsync(directory);
  ::close(directory);
}

}  // namespace

OutputFile::OutputFile(std::string path) : path_(std::move(path)), temporary_(path_ + ".tmp") {
  if (std::filesystem::is_directory(path_)) throw error("{}: is a directory, a file is to be written", path_);
  file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0) fail("cannot be opened for writing");
}

OutputFile::~OutputFile() {
  if (file_ < 0) return;
  ::close(file_);
  ::unlink(temporary_.c_str());
}

void OutputFile::fail(std::string_view what) const {
  throw error("{}: {}: {}", temporary_, what, std::generic_category().message(errno));
}

void OutputFile::write_at(int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("writing failed");
    offset += written;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void OutputFile::flush() {
  write_at(flushed_, buffer_);
  flushed_ += static_cast<int64_t>(buffer_.size());
  buffer_.clear();
}

void OutputFile::append(std::span<const std::byte> bytes) {
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  if (buffer_.size() >= kBufferBytes) flush();
}

void OutputFile::overwrite(int64_t offset, std::span<const std::byte> bytes) {
  flush();
  check(offset >= 0 && offset + static_cast<int64_t>(bytes.size()) <= flushed_,
        "{}: overwriting {} bytes at {} of {}", path_, bytes.size(), offset, flushed_);
  write_at(offset, bytes);
}

void OutputFile::commit() {
  check(file_ >= 0, "{}: committed twice", path_);
  flush();
  if (::fsync(file_) != 0) fail("flushing to the disk failed");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot be renamed to its final name");
  ::close(std::exchange(file_, -1));
  sync_directory_of(path_);
}

void write_file_atomically(const std::string& path, std::string_view content) {
  OutputFile file(path);
  file.append(std::as_bytes(std::span(content)));
  file.commit();
}

}  // namespace mpt
