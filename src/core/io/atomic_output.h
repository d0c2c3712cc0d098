// Files and directories that appear under their names only when they are complete.
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

// A file that appears under its name only when it is complete.
//
// Bytes go to `<path>.tmp`; commit() brings them to the storage device and renames. Without commit() (an
// exception, a kill) no file of that name appears and an older one stays as it was; the destructor removes
// the temporary file.

class OutputFile {
 public:
  // `fs` outlives this.
  OutputFile(FileSystem& fs, std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  void append(std::span<const std::byte> bytes);
  // Replaces bytes that were appended before.
  void overwrite(int64_t offset, std::span<const std::byte> bytes);
  void commit();

 private:
  void flush();

  FileSystem& fs_;
  std::string path_;
  std::string temporary_;
  std::unique_ptr<WritableFile> file_;  // null when committed
  int64_t flushed_ = 0;                 // bytes given to the file; the rest is in buffer_
  std::vector<std::byte> buffer_;
};

// A directory of results, which appears whole or not at all and takes the place only of an earlier one.

enum class Overwrite : uint8_t { kNo, kYes };

struct OutputDirectory {
  std::string path;
  std::string what;                     // these are, as messages say it: "an export"
  std::vector<std::string_view> files;  // names that such a directory may hold
  Overwrite overwrite = Overwrite::kNo;
};

// Throws Error if the path is empty, no directory or not empty; with Overwrite::kYes, if it holds anything
// but `files`.
void check_output(FileSystem& fs, const OutputDirectory& output);

// Checks the output, calls `write` with the path of a new directory to be filled, and puts that in place.
// Writes `path`.tmp and `path`.old on the way.
void write_directory(FileSystem& fs, const OutputDirectory& output,
                     const std::function<void(const std::string& directory)>& write);

}  // namespace mpt
