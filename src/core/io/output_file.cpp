#include "core/io/output_file.h"

#include <algorithm>
#include <array>
#include <utility>

#include <spdlog/spdlog.h>

#include "core/check.h"
#include "core/io/directory_lock.h"

namespace mpt {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

}  // namespace

namespace {

bool is_written_in_place(FileSystem& fs, const std::string& path) {
  return names_descriptor(path) || fs.kind(path) == FileKind::kOther ||
         (fs.kind(path) == FileKind::kRegular && is_mount_point(path));
}

}  // namespace

OutputFile::OutputFile(FileSystem& fs, std::string path)
    : fs_(fs),
      path_(followed(std::move(path))),
      in_place_(is_written_in_place(fs, path_)),
      temporary_(temporary_of(path_)) {
  if (fs_.is_directory(path_)) throw error("{}: is a directory; expected a file", path_);
  file_ = in_place_ ? fs_.open_stream(path_) : fs_.create(temporary_);
}

OutputFile::OutputFile(FileSystem& fs, std::string path, int64_t kept)
    : fs_(fs),
      path_(std::move(path)),
      temporary_(temporary_of(path_)),
      saved_(true),
      flushed_(kept) {
  fs_.truncate(temporary_, kept);
  file_ = fs_.open_existing(temporary_);
}

OutputFile::~OutputFile() {
  if (file_ == nullptr) return;
  file_.reset();
  if (saved_ || in_place_) return;
  try {
    fs_.remove_tree(temporary_);
  } catch (const Error&) {
    // The original failure is the one to report.
  }
}

void OutputFile::flush() {
  if (in_place_ && flushed_ == 0 && !names_descriptor(path_) &&
      fs_.kind(path_) == FileKind::kRegular)
    fs_.truncate(path_, 0);
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
  check(offset >= 0 && offset + std::ssize(bytes) <= flushed_,
        "{}: cannot overwrite {} bytes at offset {}: only {} are written", path_, bytes.size(),
        offset, flushed_);
  file_->overwrite(offset, bytes);
}

void OutputFile::save() {
  flush();
  file_->sync();
  saved_ = true;
}

void OutputFile::commit() {
  check(file_ != nullptr, "{}: committed twice", path_);
  flush();
  file_->sync();
  file_->close();
  if (in_place_) return file_.reset();
  fs_.rename(temporary_, path_);
  file_.reset();
  fs_.sync_directory(parent_directory(path_));
}

void write_file_atomically(FileSystem& fs, const std::string& path,
                           std::span<const std::byte> bytes) {
  OutputFile file(fs, path);
  file.append(bytes);
  file.commit();
}

void check_replaces_its_kind(FileSystem& fs, const std::string& path, std::string_view beginning,
                             std::string_view what) {
  if (fs.kind(path) != FileKind::kRegular || names_descriptor(followed(path))) return;
  const auto file = fs.open_read(path);
  std::string found(size_t(std::min<int64_t>(file->size(), std::ssize(beginning))), '\0');
  file->read(0, std::as_writable_bytes(std::span(found)));
  if (!found.empty() && found != beginning)
    throw error("{}: exists and is not {}; choose another file", path, what);
}

}  // namespace mpt
