// File-system interface, so that tests can inject a failure after any operation.
//
// Everything that must survive a crash is written through it. Failures throw Error with the path,
// the operation and the system's reason. An append is complete or throws: short writes are
// continued. Only regular files are read, so a pipe or directory given by mistake is an error and
// never a hang. Implementations are thread-safe; a WritableFile may be used by one thread at a
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mpt {

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// The destructor closes without sync and ignores failures; call close() to detect them.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual void append(std::span<const std::byte> bytes) = 0;
  // Replaces bytes appended earlier.
  virtual void overwrite(int64_t offset, std::span<const std::byte> bytes) = 0;
  // Returns once the bytes appended so far are on the storage device; returns at once for targets
  // without storage, such as a pipe.
  virtual void sync() = 0;
  // No other call is allowed afterwards.
  virtual void close() = 0;
};

class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  [[nodiscard]] virtual int64_t size() const = 0;  // when it was opened
  // Fills `target` from `offset`; throws Error if the file is too short.
  virtual void read(int64_t offset, std::span<std::byte> target) const = 0;
};

enum class FileKind : uint8_t { kMissing, kRegular, kDirectory, kOther };

class FileSystem {
 public:
  static constexpr int64_t kMaxReadBytes = int64_t{1} << 30;

  virtual ~FileSystem() = default;

  // Creates the file, or truncates an existing one.
  virtual std::unique_ptr<WritableFile> create(const std::string& path) = 0;
  // Creates the file if missing. All writes go to its end, even after a truncate(); overwrite() is
  // not possible.
  virtual std::unique_ptr<WritableFile> open_append(const std::string& path) = 0;
  // Opens an existing file for appending and overwriting; nobody else may change its length.
  virtual std::unique_ptr<WritableFile> open_existing(const std::string& path) = 0;
  // Opens an existing device, pipe or terminal, written in place from its beginning, or a
  // descriptor ("/dev/stdout", "/dev/fd/3"), from its current position. A pipe without a reader is
  // an error.
  virtual std::unique_ptr<WritableFile> open_stream(const std::string& path) = 0;
  virtual std::unique_ptr<ReadableFile> open_read(const std::string& path) = 0;
  virtual void truncate(const std::string& path, int64_t size) = 0;

  [[nodiscard]] virtual FileKind kind(const std::string& path) = 0;  // follows links
  [[nodiscard]] virtual bool is_link(const std::string& path) = 0;
  // Names without the directory, sorted, excluding "." and "..".
  virtual std::vector<std::string> list_directory(const std::string& path) = 0;

  virtual void create_directory(const std::string& path) = 0;  // the parent must exist; path may
  virtual void remove_file(const std::string& path) = 0;
  virtual void remove_directory(const std::string& path) = 0;  // must be empty
  virtual void rename(const std::string& from, const std::string& to) = 0;
  // Returns once the directory's entries (creations, renames, removals) are on the storage device.
  virtual void sync_directory(const std::string& path) = 0;

  [[nodiscard]] bool exists(const std::string& path) { return kind(path) != FileKind::kMissing; }
  [[nodiscard]] bool is_directory(const std::string& path) {
    return kind(path) == FileKind::kDirectory;
  }
  [[nodiscard]] int64_t file_size(const std::string& path) { return open_read(path)->size(); }
  // Reads the whole file; throws Error if it is longer than `limit` bytes.
  std::string read_file(const std::string& path, int64_t limit = kMaxReadBytes);
  // Creates the missing directories of the path, following links, and syncs each parent, so that
  // they survive a power failure.
  void create_directories(const std::string& path);
  // Removes a file, a link (not its target) or a directory with its contents; does nothing if the
  // path is missing.
  void remove_tree(const std::string& path);
};

// The operating system's file system. Never destroyed.
FileSystem& posix_file_system();

// Resolves the path's symbolic links; the target may be missing. Leaves a path that names a
// descriptor unchanged. Throws Error if links form a loop.
std::string followed(std::string path);

// Whether the path names an open descriptor: "/dev/stdout", "/dev/fd/3".
bool names_descriptor(const std::string& path);

// Whether something is mounted at the path, so that it can be written to but not renamed; this may
// be a single file, as in containers.
bool is_mount_point(const std::string& path);

// Throws Error unless files can be created in the directory or, if it is missing, in the parent
// where it would be created.
void require_writable(const std::string& directory);

// Parent directory: "a" for "a/b" and "a/b/", "." for "b".
std::string parent_directory(const std::string& path);

// directory + "/" + name; a trailing slash of `directory` is accepted.
std::string in_directory(const std::string& directory, const std::string& name);

// Removes trailing slashes; "/" is unchanged.
std::string without_slashes(std::string path);

// remove_tree() for clean-up: failures are only logged, so that they cannot hide an earlier one.
void remove_quietly(FileSystem& fs, const std::string& path);

// Leaves either the old file or the complete new one, whatever happens (output_file.h).
void write_file_atomically(FileSystem& fs, const std::string& path,
                           std::span<const std::byte> bytes);

// XXH3-128 of the content, read in pieces; calls `advance` with the size of each piece.
std::string hash_file(FileSystem& fs, const std::string& path,
                      const std::function<void(int64_t)>& advance = {});

// Whether an optional file exists. Throws Error for a dangling symbolic link, since somebody meant
// the file to exist. If `path` cannot be inspected, the first throws and the second returns false.
bool has_optional_file(FileSystem& fs, const std::string& path);
bool has_reachable_file(const std::string& path);

// Throws Error unless `path` is an existing regular file.
void require_regular_file(const std::string& path);

}  // namespace mpt
