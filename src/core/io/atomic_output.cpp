#include "core/io/atomic_output.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/io/directory_lock.h"

namespace mpt {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

}  // namespace

OutputFile::OutputFile(FileSystem& fs, std::string path)
    : fs_(fs), path_(std::move(path)), temporary_(temporary_of(path_)) {
  if (fs_.is_directory(path_)) throw error("{}: is a directory; expected a file", path_);
  file_ = fs_.create(temporary_);
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
  if (saved_) return;
  try {
    fs_.remove_tree(temporary_);
  } catch (const Error&) {
    // The original failure is the one to report.
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

namespace {

// The first name in the directory that does not belong to such results; "" if there is none.
std::string foreign_file(FileSystem& fs, const std::string& directory,
                         const OutputDirectory& output) {
  for (const std::string& name : fs.list_directory(directory))
    if (name != kLockFile &&
        std::find(output.files.begin(), output.files.end(), name) == output.files.end())
      return name;
  return "";
}

void check_replaceable(FileSystem& fs, const std::string& directory,
                       const OutputDirectory& output) {
  if (!fs.exists(directory)) return;
  if (!fs.is_directory(directory)) throw error("{}: exists and is not a directory", directory);
  if (const std::string name = foreign_file(fs, directory, output); !name.empty())
    throw error("{}: contains {}, which is not part of {}; choose another directory", directory,
                name, output.what);
}

// A directory can replace another only via a third name.
void commit(FileSystem& fs, const std::string& staging, const std::string& path,
            const std::string& replaced) {
  const bool replaces = fs.exists(path);
  if (replaces) fs.rename(path, replaced);
  try {
    fs.rename(staging, path);
  } catch (const Error&) {
    if (replaces) fs.rename(replaced, path);
    throw;
  }
  fs.sync_directory(parent_directory(path));
  fs.remove_tree(replaced);
}

}  // namespace

void check_replaces_its_kind(FileSystem& fs, const std::string& path, std::string_view beginning,
                             std::string_view what) {
  if (!fs.exists(path) || fs.kind(path) != FileKind::kRegular) return;
  const auto file = fs.open_read(path);
  std::string found(size_t(std::min<int64_t>(file->size(), std::ssize(beginning))), '\0');
  file->read(0, std::as_writable_bytes(std::span(found)));
  if (!found.empty() && found != beginning)
    throw error("{}: exists and is not {}; choose another file", path, what);
}

void check_output(FileSystem& fs, const OutputDirectory& output) {
  if (output.path.empty()) throw error("no output directory given");
  const bool holds_something =
      fs.is_directory(output.path) && !fs.list_directory(output.path).empty();
  if (holds_something && output.overwrite == Overwrite::kNo)
    throw error(
        "{}: is not empty; choose another directory, or replace earlier results with --overwrite",
        output.path);
  check_replaceable(fs, output.path, output);
}

void write_directory(FileSystem& fs, const OutputDirectory& output,
                     const std::function<void(const std::string& directory)>& write) {
  check_output(fs, output);
  const std::string path = without_slashes(output.path), staging = path + ".tmp",
                    replaced = path + ".old";
  for (const std::string& leftover : {staging, replaced}) check_replaceable(fs, leftover, output);
  fs.remove_tree(staging);
  if (fs.exists(path)) fs.remove_tree(replaced);  // else it is all there is, left by a kill
  fs.create_directories(staging);
  try {
    write(staging);
    fs.sync_directory(staging);
    commit(fs, staging, path, replaced);
  } catch (const Error&) {
    remove_quietly(fs, staging);  // makes room on a full disk
    throw;
  }
}

}  // namespace mpt
