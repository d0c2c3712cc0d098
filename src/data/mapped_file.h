// A file mapped read-only into memory.
//
// The mapping stays valid when the file is renamed or deleted. It does not survive truncation: a process that
// shortens a mapped file makes its readers die of SIGBUS, as with every memory-mapped file. Nothing here ever
// shortens a file: writers go through OutputFile, which replaces whole files by rename.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

namespace mpt {

class MappedFile {
 public:
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept
      : path_(std::move(other.path_)), data_(std::exchange(other.data_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return data_; }

 private:
  std::string path_;
  std::span<const std::byte> data_;
};

}  // namespace mpt
