// Where a config that is given by its bare name may lie.
#include <algorithm>
#include <filesystem>

#include "core/check.h"
#include "core/nearest_name.h"
#include "train/run_config.h"

namespace mpt {
namespace fs = std::filesystem;
namespace {

constexpr const char* kEnding = ".json";

bool is_there(const fs::path& path) {
  std::error_code failure;
  return fs::exists(path, failure);
}

// The path, or with the ending that was left out; "" if neither is there.
std::string existing(const fs::path& path) {
  if (is_there(path)) return path.string();
  const std::string longer = path.string() + kEnding;
  return is_there(longer) ? longer : "";
}

// " (did you mean ...?)": the nearest config in these directories, or nothing.
std::string nearest_config(const fs::path& path, const std::vector<std::string>& directories) {
  std::vector<std::string> names;
  for (const std::string& directory : directories) {
    std::error_code failure;
    for (const auto& entry : fs::directory_iterator(directory, failure))
      if (entry.path().extension() == kEnding) names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  const std::string name = path.filename().string();
  const auto nearest = nearest_name(name.ends_with(kEnding) ? name : name + kEnding, names);
  return nearest ? fmt::format(" (did you mean {}?)", (path.parent_path() / *nearest).string()) : "";
}

}  // namespace

// The installed program lies in <prefix>/bin beside <prefix>/share; a built one somewhere inside the source
// tree.
std::vector<std::string> config_directories() {
  constexpr int kLevels = 4;
  std::vector<std::string> directories{"configs"};
  std::error_code failure;
  fs::path above = fs::read_symlink("/proc/self/exe", failure).parent_path();
  for (int level = 0; level < kLevels && above.has_relative_path(); ++level, above = above.parent_path()) {
    directories.push_back((above / "share" / "mpretrain" / "configs").string());
    directories.push_back((above / "configs").string());
  }
  return directories;
}

std::string find_config(const std::string& path) {
  if (path.empty()) throw error("--config: the name of the config file is empty");
  if (const std::string found = existing(path); !found.empty()) return found;
  if (fs::path(path).has_parent_path())
    throw error("{}: no such file{}", path, nearest_config(path, {fs::path(path).parent_path().string()}));
  std::vector<std::string> directories = config_directories();
  std::string looked = fmt::format("\n  {}", path);
  for (const std::string& directory : directories) {
    const fs::path candidate = fs::path(directory) / path;
    if (const std::string found = existing(candidate); !found.empty()) return found;
    looked += fmt::format("\n  {}", candidate.string());
  }
  directories.emplace_back(".");
  throw error("{}: no such config{}; looked for{}", path, nearest_config(path, directories), looked);
}

}  // namespace mpt
