// A directory of results, which appears whole or not at all and takes the place only of an earlier one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/file_system.h"

namespace mpt {

enum class Overwrite : uint8_t { kNo, kYes };

struct OutputDirectory {
  std::string path;
  std::string what;                     // these are, as messages say it: "an export"
  std::vector<std::string_view> files;  // names that such a directory may hold
  Overwrite overwrite = Overwrite::kNo;
};

// Throws Error if the path is empty, no directory or not empty; with Overwrite::kYes, if it holds anything
// but `files`.
void check_output(FileSystem& fs, const OutputDirectory& output);

// Checks the output, calls `write` with the path of a new directory to be filled, and puts that in place.
// Writes `path`.tmp and `path`.old on the way.
void write_directory(FileSystem& fs, const OutputDirectory& output,
                     const std::function<void(const std::string& directory)>& write);

}  // namespace mpt
