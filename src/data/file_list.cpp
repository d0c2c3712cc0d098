#include "data/file_list.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include <glob.h>

#include "core/check.h"

namespace mpt {
namespace {

// Unsorted; none if there is no such file.
std::vector<std::string> globbed(const std::string& pattern) {
  glob_t found{};
  const int status = ::glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<std::string> files;
  if (status == 0) files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (status != 0 && status != GLOB_NOMATCH) throw error("{}: the pattern cannot be expanded", pattern);
  return files;
}

std::vector<std::string> matches_of(const std::string& pattern) {
  std::vector<std::string> files = globbed(pattern);
  if (files.empty()) throw error("{}: no such file, and no file matches it as a pattern", pattern);
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

bool names_a_file(const std::string& pattern) {
  std::error_code ignored;
  return std::filesystem::exists(pattern, ignored) || !globbed(pattern).empty();
}

void require_regular_file(const std::string& path) {
  std::error_code failure;
  const auto status = std::filesystem::status(path, failure);
  if (status.type() == std::filesystem::file_type::not_found) throw error("{}: no such file", path);
  if (failure) throw error("{}: {}", path, failure.message());
  if (std::filesystem::is_directory(status))
    throw error("{}: is a directory; name files, or a pattern such as {}/*", path, path);
  if (!std::filesystem::is_regular_file(status)) throw error("{}: is not a regular file", path);
}

std::vector<std::string> expand_patterns(const std::vector<std::string>& patterns) {
  if (patterns.empty()) throw error("no input files are named");
  std::vector<std::string> files;
  std::set<std::string> seen;
  for (const std::string& pattern : patterns) {
    if (pattern.empty()) throw error("an input file name is empty");
    std::error_code ignored;
    const bool literal = std::filesystem::exists(pattern, ignored);
    for (const std::string& file : literal ? std::vector{pattern} : matches_of(pattern)) {
      require_regular_file(file);
      if (!seen.insert(file).second) throw error("{}: named twice (the second time by '{}')", file, pattern);
      files.push_back(file);
    }
  }
  return files;
}

}  // namespace mpt
