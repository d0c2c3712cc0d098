// Files and directories that appear under their names only once they are complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/file_system.h"

namespace mpt {

// A file that appears under its name only once it is complete.
//
// Writes to `<path>.tmp`; commit() syncs it to the storage device and renames it. Without commit()
// (an exception, a kill) no file of that name appears and an existing one is unchanged; the
// destructor removes the temporary file. Symbolic links are followed.
//
// What cannot be replaced is written as it is: a device, a pipe, a terminal, a descriptor, and a
// file that is a mount point, which loses its earlier content with the first bytes.

class OutputFile {
 public:
  // `fs` must outlive this object. Throws Error for a directory, and where nothing can be written.
  OutputFile(FileSystem& fs, std::string path);
  // Goes on with a temporary file that was saved, behind its first `kept` bytes.
  OutputFile(FileSystem& fs, std::string path, int64_t kept);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  void append(std::span<const std::byte> bytes);
  // Replaces bytes appended earlier.
  void overwrite(int64_t offset, std::span<const std::byte> bytes);
  // Returns when what was appended is on the storage device. From then on the temporary file stays
  // without commit(), for another OutputFile to go on with.
  void save();
  void commit();

  // Where the file is until it is complete.
  [[nodiscard]] static std::string temporary_of(const std::string& path) { return path + ".tmp"; }

 private:
  void flush();

  FileSystem& fs_;
  std::string path_;
  bool in_place_ = false;
  std::string temporary_;
  std::unique_ptr<WritableFile> file_;  // null once committed
  bool saved_ = false;
  int64_t flushed_ = 0;  // bytes written to the file; the rest is in buffer_
  std::vector<std::byte> buffer_;
};

// Throws Error if the path is a file of something else: one that is not empty and does not begin as
// what is to replace it does. What is written in place is not looked at. `what` is its kind, for
// the message: "a page of this program".
void check_replaces_its_kind(FileSystem& fs, const std::string& path, std::string_view beginning,
                             std::string_view what);

// A directory of results that appears complete or not at all, and replaces only earlier results of
// the same kind.

enum class Overwrite : uint8_t { kNo, kYes };

struct OutputDirectory {
  std::string path;
  std::string what;                     // its kind, for messages: "an export"
  std::vector<std::string_view> files;  // names that such a directory may contain
  Overwrite overwrite = Overwrite::kNo;
};

// Throws Error if the path is empty, not a directory, not to be written to, or a directory that is
// not empty; with Overwrite::kYes the directory may contain `files`, a lock (directory_lock.h) and
// nothing else.
void check_output(FileSystem& fs, const OutputDirectory& output);

// Checks the output, calls `write` with the path of a new directory to fill, then puts what is in
// it into place. Symbolic links are followed.
//
// A directory that is missing appears by one rename of `path`.tmp. One that exists may be a mount
// point or somebody's working directory, so it stays and its content is replaced: results are
// complete in its `.new` before earlier ones move to `.old`, then `.replaced`. A kill on the way
// leaves one of both whole; the next call puts earlier results back before it begins.
void write_directory(FileSystem& fs, const OutputDirectory& output,
                     const std::function<void(const std::string& directory)>& write);

}  // namespace mpt
