// Reads a text file of any length line by line.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/io/file_system.h"

namespace mpt {

inline constexpr int64_t kLongestLine = int64_t{64} << 20;  // bytes

enum class LineEnd : uint8_t {
  kNewline,
  kFile,  // text after the last newline: a line still being written, or torn
};

// Calls `take` with each line, without its newline. Throws Error naming `path` and the line if one
// is longer than kLongestLine.
void each_line(const ReadableFile& file, const std::string& path,
               const std::function<void(std::string_view line, LineEnd end)>& take);

}  // namespace mpt
