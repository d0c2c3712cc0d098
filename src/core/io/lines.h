// Reads a text file by lines, whatever its length.
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
  kFile,  // text behind the last newline: a line that may still be written, or was torn
};

// Calls `take` with each line, without its newline. Throws Error that names `path` and the line if
// one is longer than kLongestLine.
void each_line(const ReadableFile& file, const std::string& path,
               const std::function<void(std::string_view line, LineEnd end)>& take);

}  // namespace mpt
