#include "core/io/output_directory.h"

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <spdlog/spdlog.h>

#include "core/check.h"
#include "core/io/directory_lock.h"

namespace mpt {
namespace {

// Names in a directory whose content is being replaced:
constexpr const char* kNew = ".new";  // to be removed: incomplete or replaced
constexpr const char* kOld = ".old";  // some of the earlier results; the rest are in place
constexpr const char* kReplaced = ".replaced";  // all earlier results; those in place are newer
constexpr std::array<std::string_view, 3> kLeftovers{kNew, kOld, kReplaced};
constexpr const char* kLostAndFound = "lost+found";  // present at the root of a mounted file system

bool is_any_of(const std::string& name, std::span<const std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Throws Error unless the directory is missing or holds only results, finished or not.
void check_replaceable(FileSystem& fs, const std::string& directory,
                       const OutputDirectory& output) {
  if (!fs.exists(directory)) return;
  if (!fs.is_directory(directory)) throw error("{}: exists and is not a directory", directory);
  for (const std::string& name : fs.list_directory(directory)) {
    if (is_any_of(name, output.files) || name == kLockFile || name == kLostAndFound) continue;
    if (!is_any_of(name, kLeftovers))
      throw error("{}: contains {}, which is not part of {}; choose another directory", directory,
                  name, output.what);
    check_replaceable(fs, in_directory(directory, name), output);
  }
}

// In the order of OutputDirectory::files.
std::vector<std::string> results_in(FileSystem& fs, const std::string& directory,
                                    const OutputDirectory& output) {
  std::vector<std::string> names;
  for (const std::string_view name : output.files)
    if (fs.exists(in_directory(directory, std::string(name)))) names.emplace_back(name);
  return names;
}

void move_results(FileSystem& fs, const std::string& from, const std::string& to,
                  const std::vector<std::string>& names) {
  for (const std::string& name : names) fs.rename(in_directory(from, name), in_directory(to, name));
}

// Moves in reverse order, so that the first of OutputDirectory::files comes last.
void move_into_place(FileSystem& fs, const std::string& from, const std::string& path,
                     const OutputDirectory& output) {
  std::vector<std::string> names = results_in(fs, from, output);
  std::reverse(names.begin(), names.end());
  move_results(fs, from, path, names);
}

// Undoes a replacement interrupted by a failure or a kill, any number of times.
void put_back(FileSystem& fs, const std::string& path, const OutputDirectory& output) {
  const std::string old = in_directory(path, kOld), replaced = in_directory(path, kReplaced);
  if (fs.exists(replaced)) {
    for (const std::string& name : results_in(fs, path, output))
      fs.remove_tree(in_directory(path, name));
    fs.rename(replaced, old);
  }
  if (fs.exists(old)) {
    move_into_place(fs, old, path, output);
    fs.sync_directory(path);
    fs.remove_tree(old);
  }
  fs.remove_tree(in_directory(path, kNew));
}

// Does not sync in between, so that readers find the directory incomplete only during a few
// renames.
void replace_results(FileSystem& fs, const std::string& path, const OutputDirectory& output) {
  const std::string made = in_directory(path, kNew), old = in_directory(path, kOld),
                    replaced = in_directory(path, kReplaced);
  fs.create_directory(old);
  move_results(fs, path, old, results_in(fs, path, output));
  fs.rename(old, replaced);
  move_into_place(fs, made, path, output);
  fs.sync_directory(path);
  fs.remove_tree(made);
  fs.rename(replaced, made);
  fs.remove_tree(made);
}

using Write = std::function<void(const std::string& directory)>;

void write_new_directory(FileSystem& fs, const std::string& path, const OutputDirectory& output,
                         const Write& write) {
  const std::string staging = path + ".tmp";
  check_replaceable(fs, staging, output);
  fs.remove_tree(staging);
  fs.create_directories(staging);
  try {
    write(staging);
    fs.sync_directory(staging);
    fs.rename(staging, path);
  } catch (const Error&) {
    remove_quietly(fs, staging);  // frees space on a full disk
    throw;
  }
  fs.sync_directory(parent_directory(path));
}

void write_into_directory(FileSystem& fs, const std::string& path, const OutputDirectory& output,
                          const Write& write) {
  const std::string staging = in_directory(path, kNew);
  try {
    fs.create_directory(staging);
    const DirectoryLock lock(staging);
    write(staging);
    fs.sync_directory(staging);
    replace_results(fs, path, output);
  } catch (const Error&) {
    try {
      put_back(fs, path, output);
    } catch (const Error& failure) {
      spdlog::warn("{}: earlier results are in {} or {}: {}", path, kOld, kReplaced,
                   failure.what());
    }
    throw;
  }
}

std::string place_of(const OutputDirectory& output) {
  if (output.path.empty()) throw error("no output directory given");
  return followed(without_slashes(output.path));
}

}  // namespace

void check_output(FileSystem& fs, const OutputDirectory& output) {
  const std::string path = place_of(output);
  if (!fs.is_directory(path)) {
    check_replaceable(fs, path, output);
    return require_writable(parent_directory(path));
  }
  require_writable(path);
  std::vector<std::string> names = fs.list_directory(path);
  const auto is_leftover = [](const std::string& name) { return is_any_of(name, kLeftovers); };
  if (std::any_of(names.begin(), names.end(), is_leftover)) {
    check_replaceable(fs, path, output);
    if (const std::string made = in_directory(path, kNew); fs.exists(made))
      const DirectoryLock nobody_fills_it(made);
    put_back(fs, path, output);
    names = fs.list_directory(path);
  }
  std::erase(names, kLostAndFound);
  if (!names.empty() && output.overwrite == Overwrite::kNo)
    throw error(
        "{}: is not empty; choose another directory, or replace earlier results with --overwrite",
        path);
  check_replaceable(fs, path, output);
}

void write_directory(FileSystem& fs, const OutputDirectory& output, const Write& write) {
  check_output(fs, output);
  const std::string path = place_of(output);
  if (fs.is_directory(path))
    write_into_directory(fs, path, output, write);
  else
    write_new_directory(fs, path, output, write);
}

}  // namespace mpt
