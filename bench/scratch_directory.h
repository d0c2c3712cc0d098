// A benchmark's own directory, removed with its contents: in $MPT_BENCH_DIRECTORY, else in the
// directory for temporary files.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "core/check.h"

namespace mpt {

class ScratchDirectory {
 public:
  ScratchDirectory() {
    const char* const chosen = std::getenv("MPT_BENCH_DIRECTORY");
    const std::filesystem::path parent = chosen ? chosen : std::filesystem::temp_directory_path();
    path_ = (parent / "mpt_bench_XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr)
      throw error("{}: cannot create a directory here; set MPT_BENCH_DIRECTORY to another one",
                  parent.string());
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace mpt
