// A temporary directory, removed with its contents at the end of the test.
//
// TempDirectory in(memory_directory()) keeps thousands of small files off the disk.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include <unistd.h>

#include "core/check.h"

namespace mpt::test {

// An in-memory directory if the system has one, else the directory for temporary files.
inline std::string memory_directory() {
  const bool usable = ::access("/dev/shm", W_OK | X_OK) == 0;
  return usable ? "/dev/shm" : std::filesystem::temp_directory_path().string();
}

class TempDirectory {
 public:
  explicit TempDirectory(
      const std::string& parent = std::filesystem::temp_directory_path().string()) {
    std::string name = parent + "/mpt_test_XXXXXX";
    check(::mkdtemp(name.data()) != nullptr, "cannot create a directory like {}", name);
    path_ = name;
  }
  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace mpt::test
