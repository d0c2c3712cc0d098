// A directory of a test's own, removed with all it holds at the end of the test.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "core/check.h"

namespace mpt::test {

class TempDirectory {
 public:
  TempDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "mpt_test_XXXXXX").string();
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
