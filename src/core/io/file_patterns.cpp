#include "core/io/file_patterns.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fnmatch.h>
#include <sys/stat.h>

#include "core/check.h"
#include "core/io/file_system.h"

// Does not use glob(), which silently skips names that it cannot inspect and directories that it
// cannot read completely.

namespace mpt {
namespace {

bool has_wildcard(std::string_view name) {
  for (size_t i = 0; i < name.size(); ++i)
    if (name[i] == '\\')
      ++i;
    else if (name[i] == '*' || name[i] == '?' ||
             (name[i] == '[' && name.find(']', i) != std::string_view::npos))
      return true;
  return false;
}

std::string unescaped(std::string_view name) {
  std::string plain;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '\\' && i + 1 < name.size()) ++i;
    plain += name[i];
  }
  return plain;
}

// Dangling links exist too: opening them reports the problem.
bool is_there(const std::string& path) {
  return posix_file_system().is_link(path) || posix_file_system().exists(path);
}

// Lists "", which means the working directory, or a path ending in a slash; empty if not a
// directory.
std::vector<std::string> names_in(const std::string& directory) {
  FileSystem& fs = posix_file_system();
  const std::string path = directory.empty() ? "." : without_slashes(directory);
  return fs.is_directory(path) ? fs.list_directory(path) : std::vector<std::string>{};
}

// Appends the paths that begin with `begin` and continue according to the pattern.
void append_matches(std::string begin, std::string_view pattern, std::vector<std::string>& found) {
  while (!pattern.empty()) {
    const size_t end = std::min(pattern.find('/'), pattern.size());
    const size_t next = std::min(pattern.find_first_not_of('/', end), pattern.size());
    const std::string name(pattern.substr(0, end)), slashes(pattern.substr(end, next - end));
    pattern.remove_prefix(next);
    if (!has_wildcard(name)) {
      begin += unescaped(name) + slashes;
      continue;
    }
    for (const std::string& match : names_in(begin))
      if (::fnmatch(name.c_str(), match.c_str(), FNM_PERIOD) == 0)
        append_matches(begin + match + slashes, pattern, found);
    return;
  }
  if (is_there(begin)) found.push_back(begin);
}

// A name that cannot be inspected may be a pattern; expanding it reports what cannot be read.
bool is_literal(const std::string& pattern) {
  try {
    return posix_file_system().exists(pattern);
  } catch (const Error&) {
    return false;
  }
}

// Sorted; empty if nothing matches.
std::vector<std::string> matches_of(const std::string& pattern) {
  if (is_literal(pattern)) return {pattern};
  std::vector<std::string> files;
  append_matches("", pattern, files);
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

bool names_a_file(const std::string& pattern) { return !matches_of(pattern).empty(); }

namespace {

// Equal for all names of a file: other spellings and links.
std::pair<dev_t, ino_t> identity_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0)
    throw error("{}: cannot be inspected: {}", path, std::generic_category().message(errno));
  return {status.st_dev, status.st_ino};
}

}  // namespace

std::vector<std::string> expand_patterns(const std::vector<std::string>& patterns) {
  if (patterns.empty()) throw error("no input files given");
  std::vector<std::string> files;
  std::map<std::pair<dev_t, ino_t>, std::string> seen;
  for (const std::string& pattern : patterns) {
    if (pattern.empty()) throw error("an input file name is empty");
    const std::vector<std::string> matches = matches_of(pattern);
    if (matches.empty())
      throw error("{}: no such file, and no file matches it as a pattern", pattern);
    for (const std::string& file : matches) {
      require_regular_file(file);
      const auto [first, is_new] = seen.emplace(identity_of(file), file);
      if (!is_new)
        throw error("{}: named twice{} (the second time by '{}')", file,
                    first->second == file ? "" : ", first as " + first->second, pattern);
      files.push_back(file);
    }
  }
  return files;
}

}  // namespace mpt
