#include "core/output_file.h"

#include <utility>

#include "core/check.h"

namespace mpt {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

}  // namespace

OutputFile::OutputFile(FileSystem& fs, std::string path)
    : fs_(fs), path_(std::move(path)), temporary_(path_ + ".tmp") {
  if (fs_.is_directory(path_)) throw error("{}: is a directory, a file is to be written", path_);
  file_ = fs_.create(temporary_);
}

OutputFile::~OutputFile() {
  if (file_ == nullptr) return;
  file_.reset();
  try {
    fs_.remove_tree(temporary_);
  } catch (const Error&) {
    // The failure that brought us here is the one to report.
  }
}

void OutputFile::flush() {
  file_->append(buffer_);
  flushed_ += std::ssize(buffer_);
  buffer_.clear();
}

void OutputFile::append(std::span<const std::byte> bytes) {
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  if (buffer_.size() >= kBufferBytes) flush();
}

void OutputFile::overwrite(int64_t offset, std::span<const std::byte> bytes) {
  flush();
  check(offset >= 0 && offset + std::ssize(bytes) <= flushed_, "{}: overwriting {} bytes at {} of {}", path_,
        bytes.size(), offset, flushed_);
  file_->overwrite(offset, bytes);
}

void OutputFile::commit() {
  check(file_ != nullptr, "{}: committed twice", path_);
  flush();
  file_->sync();
  file_->close();
  fs_.rename(temporary_, path_);
  file_.reset();
  fs_.sync_directory(parent_directory(path_));
}

void write_file_atomically(FileSystem& fs, const std::string& path, std::span<const std::byte> bytes) {
  OutputFile file(fs, path);
  file.append(bytes);
  file.commit();
}

}  // namespace mpt
