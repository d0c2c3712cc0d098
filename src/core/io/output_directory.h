// A directory of results that appears complete or not at all, and replaces only earlier results of
// the same kind.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/file_system.h"

namespace mpt {

enum class Overwrite : uint8_t { kNo, kYes };

struct OutputDirectory {
  std::string path;
  std::string what;                     // kind, for messages: "an export"
  std::vector<std::string_view> files;  // names that such a directory may contain
  Overwrite overwrite = Overwrite::kNo;
};

// Throws Error if the path is empty, not a directory, not writable, or a directory that is not
// empty; with Overwrite::kYes the directory may contain `files`, a lock (directory_lock.h) and
// nothing else.
void check_output(FileSystem& fs, const OutputDirectory& output);

// Checks the output, calls `write` with the path of a new directory to fill, then moves its
// contents into place. Follows symbolic links.
//
// A missing directory appears by a single rename of `path`.tmp. An existing one may be a mount
// point or somebody's working directory, so it stays and its content is replaced: results are
// complete in its `.new` before earlier ones move to `.old`, then `.replaced`. A kill in between
// leaves one of the two sets whole; the next call first restores earlier results.
void write_directory(FileSystem& fs, const OutputDirectory& output,
                     const std::function<void(const std::string& directory)>& write);

}  // namespace mpt
