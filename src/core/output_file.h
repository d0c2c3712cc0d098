// A file that appears under its name only when it is complete.
//
// Bytes go to `<path>.tmp`; commit() brings them to the storage device and renames. Without commit() (an
// exception, a kill) no file of that name appears and an older one stays as it was; the destructor removes
// the temporary file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/file_system.h"

namespace mpt {

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

}  // namespace mpt
