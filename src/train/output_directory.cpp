#include "train/output_directory.h"

#include <algorithm>

#include "core/check.h"

namespace mpt {
namespace {

// A name in a directory that is not of such results; "" if there is none.
std::string foreign_file(FileSystem& fs, const std::string& directory, const OutputDirectory& output) {
  for (const std::string& name : fs.list_directory(directory))
    if (std::find(output.files.begin(), output.files.end(), name) == output.files.end()) return name;
  return "";
}

void check_replaceable(FileSystem& fs, const std::string& directory, const OutputDirectory& output) {
  if (!fs.exists(directory)) return;
  if (!fs.is_directory(directory)) throw error("{}: is in the way: not a directory", directory);
  if (const std::string name = foreign_file(fs, directory, output); !name.empty())
    throw error("{}: holds {}, which is not of {}, and is left as it is; choose another directory", directory,
                name, output.what);
}

// A directory takes the place of another only by way of a third name.
void commit(FileSystem& fs, const std::string& staging, const std::string& path,
            const std::string& replaced) {
  const bool replaces = fs.exists(path);
  if (replaces) fs.rename(path, replaced);
  try {
    fs.rename(staging, path);
  } catch (const Error&) {
    if (replaces) fs.rename(replaced, path);
    throw;
  }
  fs.sync_directory(parent_directory(path));
  fs.remove_tree(replaced);
}

}  // namespace

void check_output(FileSystem& fs, const OutputDirectory& output) {
  if (output.path.empty()) throw error("no output directory is named");
  const bool holds_something = fs.is_directory(output.path) && !fs.list_directory(output.path).empty();
  if (holds_something && output.overwrite == Overwrite::kNo)
    throw error("{}: is not empty; choose another directory, or replace earlier results with --overwrite",
                output.path);
  check_replaceable(fs, output.path, output);
}

void write_directory(FileSystem& fs, const OutputDirectory& output,
                     const std::function<void(const std::string& directory)>& write) {
  check_output(fs, output);
  const std::string path = without_slashes(output.path), staging = path + ".tmp", replaced = path + ".old";
  for (const std::string& leftover : {staging, replaced}) {
    check_replaceable(fs, leftover, output);
    fs.remove_tree(leftover);
  }
  fs.create_directories(staging);
  try {
    write(staging);
    fs.sync_directory(staging);
    commit(fs, staging, path, replaced);
  } catch (const Error&) {
    remove_quietly(fs, staging);  // makes room on a full disk
    throw;
  }
}

}  // namespace mpt
