// Where a config that is given by its bare name may lie.
#include <filesystem>

#include "core/check.h"
#include "train/run_config.h"

namespace mpt {
namespace fs = std::filesystem;
namespace {

// The installed program lies in <prefix>/bin beside <prefix>/share; a built one somewhere inside the source
// tree.
std::vector<fs::path> config_directories() {
  constexpr int kLevels = 4;
  std::vector<fs::path> directories{"configs"};
  std::error_code failure;
  fs::path above = fs::read_symlink("/proc/self/exe", failure).parent_path();
  for (int level = 0; level < kLevels && above.has_relative_path(); ++level, above = above.parent_path()) {
    directories.push_back(above / "share" / "mpretrain" / "configs");
    directories.push_back(above / "configs");
  }
  return directories;
}

}  // namespace

std::string find_config(const std::string& path) {
  std::error_code failure;
  if (path.empty()) throw error("--config: the name of the config file is empty");
  if (fs::exists(path, failure)) return path;
  if (fs::path(path).has_parent_path()) throw error("{}: no such file", path);
  std::string looked = fmt::format("\n  {}", path);
  for (const fs::path& directory : config_directories()) {
    const fs::path candidate = directory / path;
    if (fs::exists(candidate, failure)) return candidate.string();
    looked += fmt::format("\n  {}", candidate.string());
  }
  throw error("{}: no such config; looked for{}", path, looked);
}

}  // namespace mpt
