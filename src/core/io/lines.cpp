#include "core/io/lines.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "core/check.h"

namespace mpt {

void each_line(const ReadableFile& file, const std::string& path,
               const std::function<void(std::string_view line, LineEnd end)>& take) {
  constexpr int64_t kPiece = int64_t{1} << 20;
  int64_t lines = 0;
  std::string pending;
  for (int64_t offset = 0, size = file.size(); offset < size; offset += kPiece) {
    std::string piece(size_t(std::min(kPiece, size - offset)), '\0');
    file.read(offset, std::as_writable_bytes(std::span(piece)));
    pending += piece;
    size_t begin = 0;
    for (size_t end = 0; (end = pending.find('\n', begin)) != std::string::npos; begin = end + 1) {
      ++lines;
      take(std::string_view(pending).substr(begin, end - begin), LineEnd::kNewline);
    }
    pending.erase(0, begin);
    if (int64_t(pending.size()) > kLongestLine)
      throw error("{}: line {} is longer than {} MiB", path, lines + 1, kLongestLine >> 20);
  }
  if (!pending.empty()) take(pending, LineEnd::kFile);
}

}  // namespace mpt
