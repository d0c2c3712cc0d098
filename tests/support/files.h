// Files and texts, as tests read them.
#pragma once

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>

#include "core/io/file_system.h"

namespace mpt::test {

inline FileSystem& disk = posix_file_system();

inline std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Returns the number of occurrences of `part` in `text`.
inline int64_t count(const std::string& text, const std::string& part) {
  int64_t found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++found;
  return found;
}

}  // namespace mpt::test
