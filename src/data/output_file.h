// A file that appears under its name only when it is complete.
//
// Bytes go to `<path>.tmp`; commit() flushes them to the disk and renames. Without commit() (an exception, a
// kill) no file of that name appears and an older one stays as it was; the destructor removes the temporary
// file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mpt {

class OutputFile {
 public:
  explicit OutputFile(std::string path);
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
  void write_at(int64_t offset, std::span<const std::byte> bytes);
  [[noreturn]] void fail(std::string_view what) const;

  std::string path_;
  std::string temporary_;
  int file_ = -1;
  int64_t flushed_ = 0;  // bytes given to the kernel; the rest of the file is in buffer_
  std::vector<std::byte> buffer_;
};

void write_file_atomically(const std::string& path, std::string_view content);

}  // namespace mpt
