// FileSystem operations built on the primitive ones, and the POSIX implementation.

#include "core/io/file_system.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fnmatch.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/check.h"
#include "core/io/hash.h"

namespace mpt {

std::string parent_directory(const std::string& path) {
  const std::string parent = std::filesystem::path(without_slashes(path)).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string in_directory(const std::string& directory, const std::string& name) {
  return directory.ends_with('/') ? directory + name : directory + "/" + name;
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

bool names_descriptor(const std::string& path) {
  for (const std::string_view directory : {"/dev/fd/", "/proc/self/fd/"})
    if (path.starts_with(directory))
      return path.find_first_not_of("0123456789", directory.size()) == std::string::npos &&
             path.size() > directory.size();
  return false;
}

std::string followed(std::string path) {
  constexpr int kMostLinks = 40;  // the limit in Linux
  const std::string begin = path;
  std::error_code failure;
  for (int links = 0; !names_descriptor(path); ++links) {
    if (!std::filesystem::is_symlink(path, failure)) break;
    if (links == kMostLinks) throw error("{}: its symbolic links form a loop", begin);
    const std::filesystem::path parent = std::filesystem::path(path).parent_path();
    path = (parent / std::filesystem::read_symlink(path, failure)).string();
  }
  return path;
}

bool is_mount_point(const std::string& path) {
  struct statx here {
  }, around{};
  const std::string parent = parent_directory(std::filesystem::absolute(path).lexically_normal());
  for (auto [name, found] : {std::pair{&path, &here}, std::pair{&parent, &around}})
    if (::statx(AT_FDCWD, name->c_str(), 0, STATX_MNT_ID, found) != 0 ||
        (found->stx_mask & STATX_MNT_ID) == 0)
      return false;
  return here.stx_mnt_id != around.stx_mnt_id;
}

void require_writable(const std::string& directory) {
  std::string nearest = directory;
  while (::access(nearest.c_str(), F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR))
    nearest = parent_directory(nearest);
  if (!posix_file_system().is_directory(nearest))
    throw error("{}: exists and is not a directory", nearest);
  if (::access(nearest.c_str(), W_OK | X_OK) != 0)
    throw error("{}: nothing can be written there: {}", nearest,
                std::generic_category().message(errno));
}

std::string FileSystem::read_file(const std::string& path, int64_t limit) {
  const auto file = open_read(path);
  if (file->size() > limit) {
    throw error("{}: has {} bytes, more than the {} accepted", path, file->size(), limit);
  }
  std::string content(static_cast<size_t>(file->size()), '\0');
  file->read(0, std::as_writable_bytes(std::span(content)));
  return content;
}

void FileSystem::create_directories(const std::string& path) {
  const FileKind found = kind(path);
  if (found == FileKind::kDirectory) return;
  if (found != FileKind::kMissing) throw error("{}: exists and is not a directory", path);
  const std::string target = followed(path), parent = parent_directory(target);
  create_directories(parent);
  create_directory(target);
  sync_directory(parent);
}

void FileSystem::remove_tree(const std::string& path) {
  if (is_link(path)) return remove_file(path);
  const FileKind found = kind(path);
  if (found == FileKind::kMissing) return;
  if (found != FileKind::kDirectory) return remove_file(path);
  for (const std::string& name : list_directory(path)) remove_tree(path + "/" + name);
  remove_directory(path);
}

void remove_quietly(FileSystem& fs, const std::string& path) {
  try {
    fs.remove_tree(path);
  } catch (const Error& failure) {
    spdlog::warn("{}: left behind: {}", path, failure.what());
  }
}

std::string hash_file(FileSystem& fs, const std::string& path,
                      const std::function<void(int64_t)>& advance) {
  constexpr int64_t kPiece = int64_t{4} << 20;
  const auto file = fs.open_read(path);
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(kPiece, file->size())));
  Hasher hasher;
  for (int64_t offset = 0; offset < file->size(); offset += kPiece) {
    const auto count = static_cast<size_t>(std::min(kPiece, file->size() - offset));
    const std::span piece = std::span(buffer).first(count);
    file->read(offset, piece);
    hasher.update(piece);
    if (advance) advance(static_cast<int64_t>(count));
  }
  return hasher.hex();
}

// The operating system's file system: POSIX calls, retried when interrupted; every failure is an
// Error with its reason.

namespace {

[[noreturn]] void fail(const std::string& path, std::string_view what, int code) {
  throw error("{}: {}: {}", path, what, std::generic_category().message(code));
}

constexpr const char* kCannotOpen = "cannot be opened for writing";

struct Duplicate {
  int fd = -1;
};

// An open file descriptor; -1 once closed.
class Descriptor {
 public:
  Descriptor(const std::string& path, int flags, std::string_view what) {
    do fd_ = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
    while (fd_ < 0 && errno == EINTR);
    if (fd_ < 0 && errno == ENXIO) throw error("{}: {}: no program reads this pipe", path, what);
    if (fd_ < 0) fail(path, what, errno);
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor(const std::string& path, Duplicate of) : fd_(::fcntl(of.fd, F_DUPFD_CLOEXEC, 0)) {
    if (fd_ < 0) fail(path, kCannotOpen, errno);
  }
  [[nodiscard]] int get() const { return fd_; }
  // Linux releases the descriptor even if close is interrupted.
  [[nodiscard]] bool close() { return ::close(std::exchange(fd_, -1)) == 0 || errno == EINTR; }

 private:
  int fd_ = -1;
};

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(const std::string& path, int flags)
      : path_(path), file_(path, flags | O_WRONLY | O_NONBLOCK, kCannotOpen) {
    // Opening a pipe must not wait for a reader, but a write waits until earlier data has been
    // read.
    if (::fcntl(file_.get(), F_SETFL, flags & O_APPEND) != 0) fail(path_, kCannotOpen, errno);
  }
  PosixWritableFile(const std::string& path, Duplicate of) : path_(path), file_(path, of) {}

  void seek_end() {
    if (::lseek(file_.get(), 0, SEEK_END) < 0) fail(path_, kCannotOpen, errno);
  }
  void append(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EAGAIN) wait_until_writable();
      if (written < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (written < 0) fail(path_, "writing failed", errno);
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
  }
  void overwrite(int64_t offset, std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t written = ::pwrite(file_.get(), bytes.data(), bytes.size(), offset);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail(path_, "writing failed", errno);
      bytes = bytes.subspan(static_cast<size_t>(written));
      offset += written;
    }
  }
  void sync() override {
    // EINVAL, EROFS: a pipe or a device without storage.
    if (::fsync(file_.get()) != 0 && errno != EINVAL && errno != EROFS)
      fail(path_, "writing to the storage device failed", errno);
  }
  void close() override {
    if (!file_.close()) fail(path_, "closing failed", errno);
  }

 private:
  // Handles a descriptor that another program made non-blocking.
  void wait_until_writable() const {
    pollfd file{.fd = file_.get(), .events = POLLOUT, .revents = 0};
    ::poll(&file, 1, -1);
    errno = EAGAIN;
  }

  std::string path_;
  Descriptor file_;
};

class PosixReadableFile final : public ReadableFile {
 public:
  // Non-blocking, because opening a pipe without a writer would block forever.
  explicit PosixReadableFile(const std::string& path)
      : path_(path), file_(path, O_RDONLY | O_NONBLOCK, "cannot be opened for reading") {
    struct stat status {};
    if (::fstat(file_.get(), &status) != 0) fail(path, "cannot be inspected", errno);
    if (S_ISDIR(status.st_mode)) throw error("{}: is a directory; expected a file", path);
    if (!S_ISREG(status.st_mode)) throw error("{}: is not a regular file", path);
    size_ = status.st_size;
  }

  [[nodiscard]] int64_t size() const override { return size_; }
  void read(int64_t offset, std::span<std::byte> target) const override {
    while (!target.empty()) {
      const ssize_t count = ::pread(file_.get(), target.data(), target.size(), offset);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail(path_, "reading failed", errno);
      if (count == 0) fail_at_end(offset, target.size());
      target = target.subspan(static_cast<size_t>(count));
      offset += count;
    }
  }

 private:
  // A truncated file may end far before `offset`.
  [[noreturn]] void fail_at_end(int64_t offset, size_t expected) const {
    struct stat status {};
    const int64_t end = ::fstat(file_.get(), &status) == 0 ? int64_t(status.st_size) : offset;
    throw error("{}: ends at byte {}; expected {} more{}", path_, std::min(end, offset), expected,
                end < offset ? fmt::format(" at byte {}", offset) : "");
  }

  std::string path_;
  Descriptor file_;
  int64_t size_ = 0;
};

class PosixFileSystem final : public FileSystem {
 public:
  std::unique_ptr<WritableFile> create(const std::string& path) override {
    return std::make_unique<PosixWritableFile>(path, O_CREAT | O_TRUNC);
  }
  std::unique_ptr<WritableFile> open_append(const std::string& path) override {
    return std::make_unique<PosixWritableFile>(path, O_CREAT | O_APPEND);
  }
  // Without O_APPEND, with which Linux would append the bytes of overwrite() too.
  std::unique_ptr<WritableFile> open_existing(const std::string& path) override {
    auto file = std::make_unique<PosixWritableFile>(path, 0);
    file->seek_end();
    return file;
  }
  std::unique_ptr<WritableFile> open_stream(const std::string& path) override {
    if (!names_descriptor(path)) return std::make_unique<PosixWritableFile>(path, 0);
    const int fd = std::atoi(path.c_str() + path.rfind('/') + 1);
    return std::make_unique<PosixWritableFile>(path, Duplicate{fd});
  }
  std::unique_ptr<ReadableFile> open_read(const std::string& path) override {
    return std::make_unique<PosixReadableFile>(path);
  }
  void truncate(const std::string& path, int64_t size) override {
    if (::truncate(path.c_str(), size) != 0) fail(path, "cannot be truncated", errno);
  }

  FileKind kind(const std::string& path) override {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) {
      if (errno == ENOENT || errno == ENOTDIR) return FileKind::kMissing;
      fail(path, "cannot be inspected", errno);
    }
    if (S_ISDIR(status.st_mode)) return FileKind::kDirectory;
    return S_ISREG(status.st_mode) ? FileKind::kRegular : FileKind::kOther;
  }
  bool is_link(const std::string& path) override {
    struct stat status {};
    return ::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode);
  }
  std::vector<std::string> list_directory(const std::string& path) override {
    std::vector<std::string> names;
    std::error_code code;
    std::filesystem::directory_iterator entry(path, code);
    for (; !code && entry != std::filesystem::directory_iterator(); entry.increment(code)) {
      names.push_back(entry->path().filename().string());
    }
    if (code) fail(path, "cannot be listed", code.value());
    std::sort(names.begin(), names.end());
    return names;
  }

  void create_directory(const std::string& path) override {
    if (::mkdir(path.c_str(), 0755) == 0) return;
    const int code = errno;
    if (code != EEXIST || !is_directory(path)) fail(path, "directory cannot be created", code);
  }
  void remove_file(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) fail(path, "cannot be removed", errno);
  }
  void remove_directory(const std::string& path) override {
    if (::rmdir(path.c_str()) != 0) fail(path, "directory cannot be removed", errno);
  }
  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) == 0) return;
    throw error("{}: cannot be renamed to {}: {}", from, to,
                std::generic_category().message(errno));
  }
  void sync_directory(const std::string& path) override {
    const Descriptor directory(path, O_RDONLY | O_DIRECTORY, "directory cannot be opened");
    // EINVAL: the file system cannot sync directories (some network file systems).
    if (::fsync(directory.get()) != 0 && errno != EINVAL) {
      fail(path, "writing the directory to the storage device failed", errno);
    }
  }
};

}  // namespace

FileSystem& posix_file_system() {
  static auto* const instance = new PosixFileSystem;
  return *instance;
}

namespace {

void refuse_dangling_link(const std::string& path) {
  std::error_code failure;
  const std::filesystem::path target = std::filesystem::read_symlink(path, failure);
  if (!failure)
    throw error("{}: is a symbolic link to {}, which does not exist; mend or remove the link", path,
                target.string());
}

}  // namespace

bool has_optional_file(FileSystem& fs, const std::string& path) {
  if (fs.exists(path)) return true;
  refuse_dangling_link(path);
  return false;
}

bool has_reachable_file(const std::string& path) {
  std::error_code failure;
  if (std::filesystem::exists(path, failure)) return true;
  if (!failure) refuse_dangling_link(path);
  return false;
}

void require_regular_file(const std::string& path) {
  std::error_code failure;
  const auto status = std::filesystem::status(path, failure);
  if (status.type() == std::filesystem::file_type::not_found) throw error("{}: no such file", path);
  if (failure) throw error("{}: {}", path, failure.message());
  if (std::filesystem::is_directory(status))
    throw error("{}: is a directory; name files, or a pattern such as {}/*", path, path);
  if (!std::filesystem::is_regular_file(status)) throw error("{}: is not a regular file", path);
}

}  // namespace mpt
